//! The frames that a client accepts, by the state of the reply.
//!
//! Replies of a session come in the order of its requests, each in these states; a frame that has
//! no arrow is fatal for the session on the client:
//!
//! ```text
//!            META           ROW, CHUNK         FETCH_DONE           AFFECTED          EXECUTE_OK
//!  Start  ─────────▶ Meta ─────────────▶ Rows ───────────▶ FetchDone ───────▶ Affected ────────▶ end
//!    │                │ ▲ META             │ ▲ ROW, CHUNK    ▲  │                   ▲
//!    │                └─┘                  └─┘               │  └───────────────────┼───────────▶ end
//!    │                └───────────────── FETCH_DONE ─────────┘                      │
//!    └─────────────────────────────── AFFECTED ────────────────────────────────────┘
//! ```
//!
//! Other notices and TOKEN_DONE come in every state; ERROR too, and it is the end. A request that
//! is no statement is answered with the one frame of its kind.
//!
//! The server's reading thread answers timestamps and capabilities, so these answers overtake
//! others. Their errors look like those of a statement, so an error belongs to the oldest other
//! request, if there is one.
//!
//! A fatal error of an open session answers all requests of the session except those two kinds, and
//! then the session is not open. If the session is not open, the error answers the oldest request.
//! More fatal errors than requests are accepted, because a server may send one for each request.
//! Two fatal errors do not concern the session: that its number is taken, and that a message is out
//! of place.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::generic::ErrorReply;
use epoll_group::codec::proto::generic::Severity;
use epoll_group::codec::proto::notice::Scope;
use epoll_group::codec::proto::session::KillSessionType;

use super::AUTO;

/// Number of a request of a connection that is to be answered, from 0.
pub type Ticket = u64;

/// Kind of a request, as far as it decides about the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// AUTHENTICATE_START
    Challenge,
    /// AUTHENTICATE_CONTINUE
    Login,
    /// CAPABILITIES_GET
    Probe,
    /// SESS_NEW
    New,
    /// SESS_CLOSE
    Close,
    /// SESS_KILL of the whole session
    Kill,
    /// EXEC_SQL, EXEC_PLAN_READ
    Statement,
    /// AUTO_SP
    Savepoint,
    /// GET_TSO
    Timestamp,
    /// One of the file messages
    File,
    /// EXPECT_OPEN, EXPECT_CLOSE
    Expect,
    /// A request that no server of today knows; an error at best
    Other,
}

impl Asked {
    /// Returns the kind of a message, or `None` if it is not answered.
    pub fn of(message: &ClientMessage) -> Option<Self> {
        Some(match message {
            ClientMessage::AuthenticateStart(_) => Self::Challenge,
            ClientMessage::AuthenticateContinue(_) => Self::Login,
            ClientMessage::CapabilitiesGet => Self::Probe,
            ClientMessage::SessionNew => Self::New,
            ClientMessage::SessionClose => Self::Close,
            ClientMessage::SessionKill(kill) if kill.r#type == KillSessionType::Query => {
                return None;
            }
            ClientMessage::SessionKill(_) => Self::Kill,
            ClientMessage::TokenOffer(_) => return None,
            ClientMessage::ExecSql(_) | ClientMessage::ExecPlan(_) => Self::Statement,
            ClientMessage::AutoSavepoint(_) => Self::Savepoint,
            ClientMessage::GetTso(_) => Self::Timestamp,
            ClientMessage::GetFileInfo(_)
            | ClientMessage::TransferFileData(_)
            | ClientMessage::ManageFile(_) => Self::File,
            ClientMessage::ExpectOpen(_) | ClientMessage::ExpectClose => Self::Expect,
            _ => Self::Other,
        })
    }

    /// True if the answer overtakes others.
    const fn is_aside(self) -> bool {
        matches!(self, Self::Probe | Self::Timestamp)
    }
}

/// Progress of the reply to a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Start,
    Meta,
    Rows,
    FetchDone,
    Affected,
}

/// A frame that a client would not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Illegal {
    pub session: u64,
    /// State and request.
    pub state: String,
    pub frame: String,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {:#x}: {} in {}", self.session, self.frame, self.state)
    }
}

impl std::error::Error for Illegal {}

/// The requests that a frame answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The request that the frame belongs to.
    pub to: Option<Ticket>,
    /// The requests that it ends; a fatal error ends several.
    pub ended: Vec<Ticket>,
}

impl Answer {
    fn part(ticket: Ticket) -> Self {
        Self { to: Some(ticket), ended: Vec::new() }
    }

    fn end(ticket: Ticket) -> Self {
        Self { to: Some(ticket), ended: vec![ticket] }
    }
}

/// The requests of one connection and the states of their replies.
#[derive(Clone, Debug, Default)]
pub struct Legal {
    next: Ticket,
    sessions: BTreeMap<u64, Session>,
}

#[derive(Clone, Debug, Default)]
struct Session {
    open: bool,
    waiting: VecDeque<(Ticket, Asked)>,
    /// State of the oldest request whose answer does not overtake.
    state: State,
    /// Offers on a session that takes none. Each may be answered by an error.
    offers: usize,
    /// Requests for timestamps that the end of the session has answered, unless they came behind it.
    late_timestamps: usize,
}

impl Legal {
    /// Registers a message of the client. Returns the request's number if it is to be answered.
    pub fn sent(&mut self, session: u64, message: &ClientMessage) -> Option<Ticket> {
        if matches!(message, ClientMessage::TokenOffer(_)) && session & AUTO != 0 {
            self.sessions.entry(session).or_default().offers += 1;
        }
        Asked::of(message).map(|asked| self.asked(session, asked))
    }

    /// Registers a request that was sent by hand.
    pub fn asked(&mut self, session: u64, asked: Asked) -> Ticket {
        let ticket = self.next;
        self.next += 1;
        self.sessions.entry(session).or_default().waiting.push_back((ticket, asked));
        ticket
    }

    /// The requests that are not answered yet.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, Ticket, Asked)> + '_ {
        self.sessions.iter().flat_map(|(&session, state)| {
            state.waiting.iter().map(move |&(ticket, asked)| (session, ticket, asked))
        })
    }

    /// Checks a message of the server and returns the requests that it answers.
    pub fn received(&mut self, id: u64, message: &ServerMessage) -> Result<Answer, Illegal> {
        let session = self.sessions.entry(id).or_default();
        // A frame that is refused changes nothing.
        session.received(id, message).ok_or_else(|| Illegal {
            session: id,
            state: session.describe(),
            frame: name(message),
        })
    }
}

impl Session {
    fn received(&mut self, id: u64, message: &ServerMessage) -> Option<Answer> {
        match message {
            ServerMessage::Error(error) if error.severity == Some(Severity::Fatal) => {
                Some(self.fatal(error))
            }
            ServerMessage::Error(_) => self.error(),
            ServerMessage::Tso(_) => {
                self.take(|asked| asked == Asked::Timestamp).or_else(|| self.late_timestamps())
            }
            ServerMessage::Capabilities(_) => self.take(|asked| asked == Asked::Probe),
            _ => self.in_order(id, message),
        }
    }

    /// Position of the oldest request that is answered in order.
    fn oldest(&self) -> Option<usize> {
        self.waiting.iter().position(|(_, asked)| !asked.is_aside())
    }

    fn take(&mut self, is: impl Fn(Asked) -> bool) -> Option<Answer> {
        let at = self.waiting.iter().position(|&(_, asked)| is(asked))?;
        self.end(at)
    }

    /// Accepts timestamps for a request that has come behind the end of its session.
    fn late_timestamps(&mut self) -> Option<Answer> {
        self.late_timestamps = self.late_timestamps.checked_sub(1)?;
        Some(Answer::default())
    }

    fn end(&mut self, at: usize) -> Option<Answer> {
        let (ticket, asked) = self.waiting.remove(at)?;
        if !asked.is_aside() {
            self.state = State::Start;
        }
        Some(Answer::end(ticket))
    }

    fn fatal(&mut self, error: &ErrorReply) -> Answer {
        let out_of_place =
            |asked| matches!(asked, Asked::Expect | Asked::Other | Asked::Challenge | Asked::Login);
        let alone = match &error.msg[..] {
            b"Duplicate session ID." => {
                // The one before it may not be answered yet.
                self.waiting.iter().rposition(|&(_, asked)| asked == Asked::New)
            }
            b"Unexpected message for polarx rpc." => {
                self.waiting.iter().position(|&(_, asked)| out_of_place(asked))
            }
            _ => None,
        };
        if let Some(answer) = alone.and_then(|at| self.remove_alone(at)) {
            return answer;
        }
        let opens = self.waiting.iter().any(|&(_, asked)| asked == Asked::New);
        if std::mem::take(&mut self.open) || opens {
            // Capabilities belong to no session, and come all the same. So do timestamps behind a kill.
            let waiting = std::mem::take(&mut self.waiting);
            let kill = waiting.iter().find(|(_, asked)| *asked == Asked::Kill).map(|kill| kill.0);
            let (aside, ended): (VecDeque<_>, VecDeque<_>) =
                waiting.into_iter().partition(|&(ticket, asked)| match asked {
                    Asked::Timestamp => kill.is_some_and(|kill| kill < ticket),
                    _ => asked.is_aside(),
                });
            self.waiting = aside;
            if kill.is_none() {
                let timestamps = ended.iter().filter(|(_, asked)| *asked == Asked::Timestamp);
                self.late_timestamps += timestamps.count();
            }
            let ended: Vec<_> = ended.into_iter().map(|(ticket, _)| ticket).collect();
            self.state = State::Start;
            return Answer { to: ended.first().copied(), ended };
        }
        self.oldest().and_then(|at| self.end(at)).unwrap_or_default()
    }

    /// Answers one request in the middle of others.
    fn remove_alone(&mut self, at: usize) -> Option<Answer> {
        if self.oldest() == Some(at) {
            return self.end(at);
        }
        self.waiting.remove(at).map(|(ticket, _)| Answer::end(ticket))
    }

    fn error(&mut self) -> Option<Answer> {
        let Some(at) = self.oldest() else {
            if !self.waiting.is_empty() {
                return self.end(0);
            }
            self.offers = self.offers.checked_sub(1)?;
            return Some(Answer::default());
        };
        // These must go well, or the session is lost.
        let fatal_only = matches!(self.waiting[at].1, Asked::New | Asked::Kill);
        if fatal_only { None } else { self.end(at) }
    }

    fn in_order(&mut self, id: u64, message: &ServerMessage) -> Option<Answer> {
        let at = self.oldest()?;
        let (ticket, asked) = self.waiting[at];
        let needs_session = !matches!(asked, Asked::Challenge | Asked::Login | Asked::New);
        if needs_session && !self.open && id & AUTO == 0 {
            return None;
        }
        match (asked, message) {
            (Asked::Statement, _) => {
                let Some(state) = self.state.after(message)? else {
                    return self.end(at);
                };
                self.state = state;
                Some(Answer::part(ticket))
            }
            (Asked::Login, ServerMessage::Notice(_)) => Some(Answer::part(ticket)),
            (Asked::New | Asked::Close, ServerMessage::Ok(_)) => {
                self.open = asked == Asked::New;
                self.end(at)
            }
            (Asked::Savepoint | Asked::Expect, ServerMessage::Ok(_))
            | (Asked::Challenge, ServerMessage::AuthenticateContinue(_))
            | (Asked::Login, ServerMessage::AuthenticateOk(_))
            | (
                Asked::File,
                ServerMessage::FileInfo(_)
                | ServerMessage::FileData(_)
                | ServerMessage::FileManaged(_),
            ) => self.end(at),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        let open = if self.open { "an open session" } else { "no open session" };
        match self.oldest().or(if self.waiting.is_empty() { None } else { Some(0) }) {
            Some(at) => format!("{:?} of {:?}, {open}", self.state, self.waiting[at].1),
            None => format!("{open} of which nothing is asked"),
        }
    }
}

impl State {
    /// Returns the state after a frame: `Some(None)` at the end of the reply, `None` if the frame
    /// is illegal.
    fn after(self, message: &ServerMessage) -> Option<Option<Self>> {
        let next = match (self, message) {
            (_, ServerMessage::TokenDone(_)) => self,
            (_, ServerMessage::Notice(frame)) => {
                let local = frame.scope == Some(Scope::Local);
                match (Notice::read(frame, &Limits::default()).ok()?, self) {
                    // Only in this state is the scope of the notice not checked.
                    (Notice::RowsAffected(_), Self::FetchDone) => Self::Affected,
                    (Notice::RowsAffected(_), Self::Start) if local => Self::Affected,
                    (Notice::RowsAffected(_), _) => return None,
                    (Notice::InsertId(_), _) if !local => return None,
                    _ => self,
                }
            }
            (Self::Start | Self::Meta, ServerMessage::ColumnMetaData(_)) => Self::Meta,
            (Self::Meta | Self::Rows, ServerMessage::Row(_) | ServerMessage::Chunk(_)) => {
                Self::Rows
            }
            (Self::Meta | Self::Rows, ServerMessage::FetchDone(_)) => Self::FetchDone,
            (Self::FetchDone | Self::Affected, ServerMessage::StmtExecuteOk) => return Some(None),
            _ => return None,
        };
        Some(Some(next))
    }
}

/// Name of a message in the protocol, with the content of a notice.
fn name(message: &ServerMessage) -> String {
    let kind = message.kind();
    let known = ServerKind::from_number(kind);
    let known = known.map_or_else(|| format!("kind {kind}"), |kind| kind.protocol_name().into());
    match message {
        ServerMessage::Notice(frame) => {
            let notice = Notice::read(frame, &Limits::default());
            format!("{known} {:?} {notice:?}", frame.scope.unwrap_or_default())
        }
        ServerMessage::Error(error) => format!("{known} {error}"),
        _ => known,
    }
}
