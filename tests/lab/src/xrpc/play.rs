//! Plays a recorded client to a server, and compares the answers.
//!
//! The frames are those of the recording, but for the proof of the login, which belongs to the
//! challenge. The player sends a frame when the server has done what it had done in the recording:
//! answered the same requests, and asked for as many offers in the reply that is under way. A
//! server that asks for more of them gets more.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use epoll_group::codec::error::code;
use epoll_group::codec::message::ClientMessage;

use super::super::random;
use super::client::{Client, Trouble};
use super::conversation::{Act, Conversation, Line};
use super::datum::Datum;
use super::exchange::Exchange;
use super::legal::{Asked, Ticket};
use super::reply::Reply;
use super::request;

/// The server to play to, and an account of it.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub addr: SocketAddr,
    pub user: &'a str,
    pub password: &'a str,
}

/// How the client's bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chop {
    /// One write a frame.
    Whole,
    /// In small writes, cut at random. A failing test prints the seed.
    Random(u64),
}

impl Chop {
    /// With the seed in `EG_TEST_SEED`, or a new one.
    pub fn random() -> Self {
        Self::Random(random::seed())
    }
}

/// A request with its recorded reply and the server's reply.
#[derive(Clone, Debug)]
pub struct Pair {
    pub connection: u64,
    pub ticket: Ticket,
    pub session: u64,
    pub request: ClientMessage,
    /// Not `done` if the recording ends before the reply.
    pub recorded: Reply,
    pub live: Reply,
}

/// All requests of a conversation, by connection and in order.
#[derive(Clone, Debug)]
pub struct Transcript {
    pub name: String,
    pub chop: Chop,
    pub pairs: Vec<Pair>,
}

/// Plays the whole conversation. Panics when an answer is illegal, or does not come.
#[track_caller]
pub fn play(target: &Target<'_>, conversation: &Conversation, chop: Chop) -> Transcript {
    let name = &conversation.name;
    let mut connections = BTreeMap::new();
    for (at, line) in conversation.lines.iter().enumerate() {
        let player = connections
            .entry(line.connection)
            .or_insert_with(|| Player::connect(target, line.connection, chop));
        if let Err(trouble) = player.step(target, line) {
            let waiting = player.client.as_ref().map(Client::waiting);
            panic!("{name}, line {}, {chop:?}: {trouble}; outstanding {waiting:?}", at + 1);
        }
    }
    let mut pairs = Vec::new();
    for player in connections.values_mut() {
        if let Err(trouble) = player.finish() {
            panic!("{name}, at the end, {chop:?}: {trouble}");
        }
        pairs.append(&mut player.pairs);
    }
    Transcript { name: name.clone(), chop, pairs }
}

/// One connection.
struct Player {
    connection: u64,
    /// `None` once it is closed.
    client: Option<Client>,
    recorded: Exchange,
    requests: Vec<(Ticket, u64, ClientMessage)>,
    /// How many TOKEN_DONEs of a reply were answered.
    answered: BTreeMap<Ticket, usize>,
    chop: Chop,
    pairs: Vec<Pair>,
}

impl Player {
    fn connect(target: &Target<'_>, connection: u64, chop: Chop) -> Self {
        let mut client = Client::connect(target.addr);
        client.set_offers(None);
        if let Chop::Random(seed) = chop {
            client.chop(seed ^ connection);
        }
        Self {
            connection,
            client: Some(client),
            recorded: Exchange::default(),
            requests: Vec::new(),
            answered: BTreeMap::new(),
            chop,
            pairs: Vec::new(),
        }
    }

    fn step(&mut self, target: &Target<'_>, line: &Line) -> Result<(), Trouble> {
        match line.act {
            Act::Client => self.send(target, line),
            Act::Server => {
                self.recorded.received(&line.frame()).map(drop).map_err(Trouble::Illegal)
            }
            Act::Close => self.finish(),
        }
    }

    fn send(&mut self, target: &Target<'_>, line: &Line) -> Result<(), Trouble> {
        let session = line.frame().session();
        self.catch_up(session)?;
        let client = self.client.as_mut().expect("nothing is sent on a closed connection");
        let mut request = line.request();
        if let ClientMessage::AuthenticateContinue(_) = request {
            let start = self.requests.iter().rev();
            let start = start.map(|&(ticket, ..)| client.so_far(ticket));
            let challenge = start.filter_map(|reply| reply.challenge.as_ref()).next();
            let challenge = challenge.expect("a challenge came before");
            let proof = Client::proof(target.user, target.password, challenge);
            request = request::login_continue(proof);
        }
        if let Some(ticket) = oldest(client, session) {
            let answered = match &request {
                ClientMessage::TokenOffer(_) => Some(client.so_far(ticket).token_done),
                // A killed request ends without offers.
                ClientMessage::SessionKill(_) => Some(usize::MAX),
                _ => None,
            };
            self.answered.extend(answered.map(|count| (ticket, count)));
        }
        let ticket = client.queue(session, &request);
        assert_eq!(self.recorded.sent(session, &line.request()), ticket, "the same requests");
        if self.chop == Chop::Whole {
            client.try_flush().map_err(|error| Trouble::Broken(error.kind()))?;
        }
        self.requests.extend(ticket.map(|ticket| (ticket, session, request)));
        Ok(())
    }

    /// Waits until the server has done what it had done in the recording.
    fn catch_up(&mut self, session: u64) -> Result<(), Trouble> {
        for at in 0..self.requests.len() {
            let (ticket, of, _) = self.requests[at];
            let recorded = self.recorded.reply(ticket).expect("nobody takes them before the end");
            if recorded.done {
                self.complete(ticket)?;
            } else if of == session && recorded.token_done > 0 {
                let count = recorded.token_done;
                self.wait(ticket, |reply| reply.token_done >= count)?;
            }
        }
        Ok(())
    }

    /// Waits for the whole reply, and offers whatever that takes.
    fn complete(&mut self, ticket: Ticket) -> Result<(), Trouble> {
        loop {
            let answered = self.answered.get(&ticket).copied().unwrap_or(0);
            let done = self.wait(ticket, |reply| reply.token_done > answered)?;
            let client = self.client.as_mut().expect("it is open");
            let reply = client.so_far(ticket);
            if done {
                return Ok(());
            }
            self.answered.insert(ticket, reply.token_done);
            let session = reply.session;
            client.queue(session, &request::offer(1));
        }
    }

    /// Waits until the condition holds or the reply is whole; says whether it is.
    fn wait(&mut self, ticket: Ticket, enough: impl Fn(&Reply) -> bool) -> Result<bool, Trouble> {
        let client = self.client.as_mut().expect("it is open");
        client.try_flush().map_err(|error| Trouble::Broken(error.kind()))?;
        client.wait(|client| {
            let reply = client.so_far(ticket);
            reply.done || enough(reply)
        })?;
        Ok(client.so_far(ticket).done)
    }

    /// Waits for all replies and closes the connection.
    fn finish(&mut self) -> Result<(), Trouble> {
        if self.client.is_none() {
            return Ok(());
        }
        for at in 0..self.requests.len() {
            self.complete(self.requests[at].0)?;
        }
        let mut client = self.client.take().expect("it was open above");
        client.try_flush().map_err(|error| Trouble::Broken(error.kind()))?;
        for (ticket, session, request) in self.requests.drain(..) {
            let recorded = self.recorded.take(ticket).expect("the same requests");
            let live = client.reply_to(ticket);
            let connection = self.connection;
            self.pairs.push(Pair { connection, ticket, session, request, recorded, live });
        }
        Ok(())
    }
}

/// The oldest request of a session that is not answered in full.
fn oldest(client: &Client, session: u64) -> Option<Ticket> {
    let of_session = |&&(of, ..): &&(u64, Ticket, Asked)| of == session;
    client.waiting().iter().find(of_session).map(|&(_, ticket, _)| ticket)
}

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// An error in place of a result or the other way round, or another error.
    Error,
    /// Number of columns.
    Columns,
    /// Names of columns.
    Labels,
    /// Values, or the number of rows.
    Rows,
    /// Rows that were changed.
    Affected,
    /// The number that a row was given.
    InsertId,
    /// A timestamp is not above those before it.
    Timestamp,
}

/// A difference in values between what was recorded and what the server says.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    pub what: What,
    pub request: String,
    pub text: String,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}: {}", self.what, self.request, self.text)
    }
}

impl Transcript {
    /// Differences between values that should be equal. Numbers of connections, versions, time
    /// zones, timestamps, texts of errors and lengths of interrupted results may differ.
    pub fn differences(&self) -> Vec<Difference> {
        let mut all: Vec<_> = self.pairs.iter().flat_map(Pair::differences).collect();
        let mut next = 0;
        for pair in &self.pairs {
            let (ClientMessage::GetTso(request), Some(first)) =
                (&pair.request, pair.live.timestamp)
            else {
                continue;
            };
            if first < next {
                all.push(pair.differs(What::Timestamp, format!("{first} is below {next}")));
            }
            next = first + u64::try_from(request.batch_count).unwrap_or(0);
        }
        all
    }

    /// The pairs of statements with this text.
    pub fn statements(&self, sql: &str) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| pair.statement() == sql)
    }
}

impl Pair {
    /// Returns the text of the statement. If the request has no text, returns a description of it.
    pub fn statement(&self) -> String {
        match &self.request {
            ClientMessage::ExecSql(statement) => match &statement.stmt {
                Some(text) => String::from_utf8_lossy(text).into_owned(),
                None => "a digest".into(),
            },
            ClientMessage::ExecPlan(plan) if plan.plan.is_none() => "a digest of a plan".into(),
            _ => format!("{:?}", self.live.asked),
        }
    }

    fn differs(&self, what: What, text: String) -> Difference {
        let request = format!("{} (request {})", self.statement(), self.ticket);
        Difference { what, request, text }
    }

    /// Where the values differ.
    pub fn differences(&self) -> Vec<Difference> {
        let (recorded, live) = (&self.recorded, &self.live);
        let mut found = Vec::new();
        let mut differs = |what, text| found.push(self.differs(what, text));
        match (&recorded.error, &live.error) {
            (None, Some(error)) => differs(What::Error, format!("{error:?}")),
            (Some(error), Some(other)) => {
                let same = error.fatal == other.fatal && error.state == other.state;
                if !same || now(error.code) != now(other.code) {
                    differs(What::Error, format!("{other:?}, not {error:?}"));
                }
            }
            // An earlier client may have given the server the text of the digest.
            (Some(error), None) if now(error.code) == code::CACHE_MISS => return found,
            (Some(error), None) => differs(What::Error, format!("none, not {error:?}")),
            (None, None) => {}
        }
        if recorded.done && live.error.is_none() {
            let counts = (live.columns.len(), recorded.columns.len());
            if counts.0 != counts.1 {
                differs(What::Columns, format!("{}, not {}", counts.0, counts.1));
            }
            let labels = (live.labels(), recorded.labels());
            let named = labels.0.iter().all(|label| !label.is_empty());
            if named && !labels.0.iter().zip(&labels.1).all(|(a, b)| a.eq_ignore_ascii_case(b)) {
                differs(What::Labels, format!("{:?}, not {:?}", labels.0, labels.1));
            }
            if recorded.affected.is_some() && recorded.affected != live.affected {
                let text = format!("{:?}, not {:?}", live.affected, recorded.affected);
                differs(What::Affected, text);
            }
            if recorded.insert_id != live.insert_id {
                let text = format!("{:?}, not {:?}", live.insert_id, recorded.insert_id);
                differs(What::InsertId, text);
            }
        }
        if let Err(text) = self.compare_rows() {
            differs(What::Rows, text);
        }
        found
    }

    fn compare_rows(&self) -> Result<(), String> {
        let (live, recorded) = (&self.live.rows, &self.recorded.rows);
        match self.statement().trim().to_ascii_lowercase().as_str() {
            "show variables" | "show global variables" => return variables(live, recorded),
            "select connection_id()" => {
                let number = live.first().and_then(|row| row.first()?.integer());
                return number.map(drop).ok_or_else(|| format!("{live:?} is no number"));
            }
            _ => {}
        }
        // After an interruption, numbers of rows may differ, because its moment is not known.
        let whole = self.recorded.error.is_none() && self.live.error.is_none();
        if whole && self.recorded.done && live.len() != recorded.len() {
            return Err(format!("{} rows, not {}", live.len(), recorded.len()));
        }
        for (at, (row, expected)) in live.iter().zip(recorded).enumerate() {
            let same = row.iter().zip(expected).all(|(a, b)| a.same(b));
            if !same || row.len() != expected.len() {
                return Err(format!("row {at} is {row:?}, not {expected:?}"));
            }
        }
        Ok(())
    }
}

/// The number that today's servers give. Older ones say 6000 if a digest is not in their cache.
const fn now(error: u32) -> u32 {
    if error == 6000 { code::CACHE_MISS } else { error }
}

/// Each variable of the recording must be there; some are the server's own affair.
fn variables(live: &[Vec<Datum>], recorded: &[Vec<Datum>]) -> Result<(), String> {
    const OWN: &[&str] = &["version", "system_time_zone", "time_zone"];
    for row in recorded {
        let [name, value] = &row[..] else { return Err(format!("{row:?} is no variable")) };
        let name = name.text().unwrap_or_default();
        let is = |row: &&Vec<Datum>| {
            row.first().and_then(Datum::text).is_some_and(|other| other.eq_ignore_ascii_case(name))
        };
        let Some(found) = live.iter().find(is).and_then(|row| row.get(1)) else {
            return Err(format!("no variable {name}"));
        };
        if !OWN.contains(&name) && !found.same(value) {
            return Err(format!("{name} is {found:?}, not {value:?}"));
        }
    }
    Ok(())
}
