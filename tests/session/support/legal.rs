//! The table of the frames that a client accepts.

use std::io::Write;
use std::net::TcpListener;

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::message::{ClientMessage, Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::generic::{ErrorReply, OkReply};
use epoll_group::codec::proto::notice::Scope;
use epoll_group::codec::proto::resultset::{Chunk, ColumnMetaData, FetchDone, Row, TokenDone};
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateOk, KillSessionType};
use epoll_group::codec::proto::tso::ResultTso;
use epoll_group::codec::row::Column;

use lab::xrpc::conversation::{Act, Line, judge};
use lab::xrpc::legal::{Answer, Asked, Legal};
use lab::xrpc::{AUTO, Client, Conversation, Exchange, conversations, request};

/// Frame of this name in the table.
fn frame(name: &str) -> ServerMessage {
    let global = |notice: Notice| {
        let mut frame = notice.to_frame();
        frame.scope = Some(Scope::Global);
        ServerMessage::Notice(frame)
    };
    match name {
        "meta" => ServerMessage::ColumnMetaData(ColumnMetaData::default()),
        "row" => ServerMessage::Row(Row::default()),
        "chunk" => ServerMessage::Chunk(Chunk::default()),
        "done" => ServerMessage::FetchDone(FetchDone::default()),
        "more" => ServerMessage::FetchDoneMoreResultsets,
        "suspended" => ServerMessage::FetchSuspended,
        "affected" => ServerMessage::Notice(Notice::RowsAffected(0).to_frame()),
        "affected all" => global(Notice::RowsAffected(0)),
        "id" => ServerMessage::Notice(Notice::InsertId(7).to_frame()),
        "id all" => global(Notice::InsertId(7)),
        "warning" => ServerMessage::Notice(Notice::Warning(Default::default()).to_frame()),
        "unknown notice" => ServerMessage::Notice(Notice::Other(9, Vec::new()).to_frame()),
        "token" => ServerMessage::TokenDone(TokenDone::default()),
        "end" => ServerMessage::StmtExecuteOk,
        "ok" => ServerMessage::Ok(OkReply::default()),
        "tso" => ServerMessage::Tso(ResultTso::default()),
        "challenge" => ServerMessage::AuthenticateContinue(AuthenticateContinue::default()),
        "logged in" => ServerMessage::AuthenticateOk(AuthenticateOk::default()),
        "capabilities" => ServerMessage::Capabilities(Default::default()),
        "unknown" => ServerMessage::Unknown(77, Vec::new()),
        "error" => ServerMessage::Error(ErrorReply::error(1064, b"42000", "no")),
        "fatal" => ServerMessage::Error(ErrorReply::fatal(8001, b"HY000", "lost")),
        other => panic!("no frame {other}"),
    }
}

const ALL: &[&str] = &[
    "meta",
    "row",
    "chunk",
    "done",
    "more",
    "suspended",
    "affected",
    "affected all",
    "id",
    "id all",
    "warning",
    "unknown notice",
    "token",
    "end",
    "ok",
    "tso",
    "challenge",
    "logged in",
    "capabilities",
    "unknown",
    "error",
    "fatal",
];

/// Frames that every state of a statement accepts.
const ANYWHERE: &[&str] = &["id", "warning", "unknown notice", "token", "error", "fatal"];

const SESSION: u64 = 2;

/// State of an open session that has sent this request.
fn asked(asked: Asked) -> Legal {
    let mut legal = Legal::default();
    legal.asked(SESSION, Asked::New);
    legal.received(SESSION, &frame("ok")).expect("it opens");
    legal.asked(SESSION, asked);
    legal
}

#[test]
fn each_state_of_a_statement_accepts_what_the_table_says() {
    let table: [(&[&str], &[&str]); 6] = [
        (&[], &["meta", "affected"]),
        (&["meta"], &["meta", "row", "chunk", "done"]),
        (&["meta", "row"], &["row", "chunk", "done"]),
        (&["meta", "done"], &["affected", "affected all", "end"]),
        (&["meta", "done", "affected"], &["end"]),
        (&["affected"], &["end"]),
    ];
    for (before, accepted) in table {
        let mut legal = asked(Asked::Statement);
        for name in before {
            let answer = legal.received(SESSION, &frame(name)).expect("legal");
            assert!(answer.ended.is_empty(), "{name} is not the end");
        }
        for name in ALL {
            let mut legal = legal.clone();
            let expected = ANYWHERE.contains(name) || accepted.contains(name);
            let answer = legal.received(SESSION, &frame(name));
            assert_eq!(answer.is_ok(), expected, "{name} behind {before:?}: {answer:?}");
            let ends = matches!(*name, "end" | "error" | "fatal");
            assert_eq!(answer.is_ok_and(|answer| !answer.ended.is_empty()), expected && ends);
        }
    }
}

#[test]
fn other_requests_accept_the_frames_of_their_kind_alone() {
    let table: [(Asked, &[&str]); 9] = [
        (Asked::New, &["ok", "fatal"]),
        (Asked::Close, &["ok", "error", "fatal"]),
        (Asked::Kill, &["fatal"]),
        (Asked::Savepoint, &["ok", "error", "fatal"]),
        (Asked::Expect, &["ok", "error", "fatal"]),
        (Asked::Timestamp, &["tso", "error", "fatal"]),
        (Asked::Probe, &["capabilities", "error", "fatal"]),
        (Asked::Challenge, &["challenge", "error", "fatal"]),
        (
            Asked::Login,
            &[
                "logged in",
                "affected",
                "affected all",
                "id",
                "id all",
                "warning",
                "unknown notice",
                "error",
                "fatal",
            ],
        ),
    ];
    for (what, accepted) in table {
        for name in ALL {
            let answer = asked(what).received(SESSION, &frame(name));
            assert_eq!(answer.is_ok(), accepted.contains(name), "{name} for {what:?}: {answer:?}");
        }
    }
}

#[test]
fn nothing_comes_unasked_and_nothing_of_a_session_that_is_not_open() {
    for name in ALL {
        // A fatal error may come more than once.
        let fatal = *name == "fatal";
        assert_eq!(Legal::default().received(SESSION, &frame(name)).is_ok(), fatal, "{name}");
        let mut closed = asked(Asked::Close);
        closed.received(SESSION, &frame("ok")).expect("it closes");
        closed.asked(SESSION, Asked::Statement);
        let error = matches!(*name, "error" | "fatal");
        assert_eq!(closed.received(SESSION, &frame(name)).is_ok(), error, "{name}");
        let mut killed = asked(Asked::Statement);
        killed.received(SESSION, &frame("meta")).expect("legal");
        killed.received(SESSION, &frame("fatal")).expect("legal");
        assert_eq!(killed.received(SESSION, &frame(name)).is_ok(), fatal, "late {name}");
    }
}

#[test]
fn timestamps_and_capabilities_overtake() {
    let mut legal = asked(Asked::Statement);
    legal.received(SESSION, &frame("meta")).expect("legal");
    let timestamp = legal.asked(SESSION, Asked::Timestamp);
    let probe = legal.asked(SESSION, Asked::Probe);
    let answer = legal.received(SESSION, &frame("capabilities")).expect("legal");
    assert_eq!(answer.ended, [probe]);
    let answer = legal.received(SESSION, &frame("tso")).expect("legal");
    assert_eq!(answer.ended, [timestamp]);
    legal.received(SESSION, &frame("row")).expect("the statement is where it was");
}

#[test]
fn the_end_of_a_session_answers_the_timestamps_that_were_asked_before() {
    let mut killed = asked(Asked::Timestamp);
    let kill = killed.asked(SESSION, Asked::Kill);
    let behind = killed.asked(SESSION, Asked::Timestamp);
    let answer = killed.received(SESSION, &frame("fatal")).expect("legal");
    assert_eq!(answer.ended, [kill - 1, kill]);
    assert_eq!(killed.received(SESSION, &frame("tso")).expect("legal").ended, [behind]);
    assert!(killed.received(SESSION, &frame("tso")).is_err());
    // The server may have ended the session before it read the request.
    let mut ended = asked(Asked::Statement);
    let timestamp = ended.asked(SESSION, Asked::Timestamp);
    let answer = ended.received(SESSION, &frame("fatal")).expect("legal");
    assert_eq!(answer.ended, [timestamp - 1, timestamp]);
    assert_eq!(ended.received(SESSION, &frame("tso")).expect("legal"), Answer::default());
    assert!(ended.received(SESSION, &frame("tso")).is_err());
}

#[test]
fn a_fatal_error_answers_all_of_its_session() {
    let mut legal = asked(Asked::Statement);
    legal.asked(SESSION, Asked::Close);
    legal.asked(SESSION, Asked::Statement);
    legal.asked(4, Asked::New);
    let answer = legal.received(SESSION, &frame("fatal")).expect("legal");
    assert_eq!(answer.ended, [1, 2, 3]);
    assert_eq!(legal.waiting().collect::<Vec<_>>(), [(4, 4, Asked::New)]);
    // After that, each request gets a fatal error of its own.
    legal.asked(SESSION, Asked::Statement);
    legal.asked(SESSION, Asked::Statement);
    let answer = legal.received(SESSION, &frame("fatal")).expect("legal");
    assert_eq!(answer.ended, [5]);
}

#[test]
fn two_fatal_errors_leave_the_session_alone() {
    let error = |text: &str| ServerMessage::Error(ErrorReply::fatal(8001, b"HY000", text));
    let mut legal = asked(Asked::Statement);
    let again = legal.asked(SESSION, Asked::New);
    let answer = legal.received(SESSION, &error("Duplicate session ID.")).expect("legal");
    assert_eq!(answer.ended, [again]);
    let expect = legal.asked(SESSION, Asked::Expect);
    let text = "Unexpected message for polarx rpc.";
    let answer = legal.received(SESSION, &error(text)).expect("legal");
    assert_eq!(answer.ended, [expect]);
    legal.received(SESSION, &frame("meta")).expect("the statement goes on");
}

#[test]
fn offers_and_killed_queries_are_not_answered_but_on_sessions_for_one_statement() {
    let mut legal = asked(Asked::Statement);
    let kill = request::kill(SESSION, KillSessionType::Query);
    assert_eq!(legal.sent(SESSION, &kill), None);
    assert_eq!(legal.sent(SESSION, &request::offer(1)), None);
    let answer = legal.received(SESSION, &frame("error")).expect("legal");
    assert_eq!(answer.ended, [1]);
    legal.received(SESSION, &frame("error")).expect_err("there is one statement");

    legal.asked(AUTO, Asked::Statement);
    legal.sent(AUTO, &request::offer(1));
    for name in ["affected", "end", "error"] {
        legal.received(AUTO, &frame(name)).expect("legal");
    }
    legal.received(AUTO, &frame("error")).expect_err("there was one offer");
}

#[test]
fn recorded_conversations_are_legal() {
    for conversation in conversations() {
        let judged = judge(&conversation.lines).expect(&conversation.name);
        for exchange in judged.values() {
            // The toy that was recorded does not answer the end of a session.
            let open = exchange.waiting();
            let open = open.iter().filter(|(.., asked)| *asked != Asked::Close);
            assert_eq!(open.count(), 0, "{conversation:?}");
        }
    }
}

/// Change of a recording.
#[derive(Clone, Copy, Debug)]
enum Mutation {
    Drop,
    Duplicate,
    /// The frame changes places with the next line, if that is a frame of the server.
    Swap,
}

/// Letter for the kind of a frame. This oracle states the table a second time, in another form.
fn letter(line: &Line) -> char {
    let frame = line.frame();
    match ServerKind::from_number(frame.kind()).expect("a known kind") {
        ServerKind::Ok => 'o',
        ServerKind::Error => 'x',
        ServerKind::AuthenticateContinue => 'c',
        ServerKind::AuthenticateOk => 'l',
        ServerKind::ColumnMetaData => 'm',
        ServerKind::Row => 'r',
        ServerKind::Chunk => 'k',
        ServerKind::FetchDone => 'd',
        ServerKind::StmtExecuteOk => 'e',
        ServerKind::TokenDone => 't',
        ServerKind::Tso => 's',
        // Only the notice of the affected rows changes the state of a reply.
        ServerKind::Notice if frame.body().starts_with(b"\x08\x03\x10\x02\x1a\x08\x08\x04") => 'a',
        ServerKind::Notice => 'n',
        other => panic!("not recorded: {other:?}"),
    }
}

/// Returns true if a client accepts the changed recording all the same.
fn accepts(mutation: Mutation, lines: &[Line], at: usize) -> bool {
    let this = letter(&lines[at]);
    match mutation {
        // A dropped chunk goes unnoticed, because chunks count by their rows.
        Mutation::Drop => "rktn".contains(this),
        Mutation::Duplicate => "rktn".contains(this),
        Mutation::Swap => {
            let next = letter(&lines[at + 1]);
            let pair = [this, next];
            // Two frames may be swapped if they are equal, or if one may stand anywhere in a
            // statement. No frame may follow the end of a reply.
            let ends = "olexsc".contains(this) || "olexsc".contains(next);
            this == next || !ends && pair.iter().any(|letter| "tn".contains(*letter))
        }
    }
}

#[test]
fn a_frame_lost_doubled_or_out_of_order_is_noticed() {
    let mut counts = [0, 0];
    let setup = Conversation::named("setup");
    for conversation in conversations() {
        let Conversation { name, lines } = &conversation;
        let left = unanswered(&judge(lines).expect(name));
        for (at, line) in lines.iter().enumerate() {
            // Skips the setup, which begins every conversation, and rows among rows, which are all
            // alike.
            let seen = *name != setup.name && setup.lines.get(at) == Some(line);
            let row = |at: usize| lines[at].act == Act::Server && letter(&lines[at]) == 'r';
            if line.act != Act::Server || seen || (row(at - 1) && row(at) && row(at + 1)) {
                continue;
            }
            for mutation in [Mutation::Drop, Mutation::Duplicate, Mutation::Swap] {
                let mut mutated = lines.clone();
                match mutation {
                    Mutation::Drop => drop(mutated.remove(at)),
                    Mutation::Duplicate => mutated.insert(at, line.clone()),
                    Mutation::Swap => {
                        let next = lines.get(at + 1);
                        // Columns that change places are another result, and legal.
                        let columns = |next| letter(line) == 'm' && letter(next) == 'm';
                        if next.is_none_or(|next| next.act != Act::Server || columns(next)) {
                            continue;
                        }
                        mutated.swap(at, at + 1);
                    }
                }
                let judged = judge(&mutated);
                let accepted = judged.as_ref().is_ok_and(|judged| unanswered(judged) == left);
                let expected = accepts(mutation, lines, at);
                assert_eq!(accepted, expected, "{name}, line {}, {mutation:?}: {judged:?}", at + 1);
                counts[usize::from(accepted)] += 1;
            }
        }
    }
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
}

/// Requests without an answer.
fn unanswered<'a>(
    connections: impl IntoIterator<Item = (&'a u64, &'a Exchange)>,
) -> Vec<(u64, u64, Asked)> {
    connections.into_iter().flat_map(|(_, exchange)| exchange.waiting()).collect()
}

#[test]
fn a_recorded_request_asks_what_its_kind_says() {
    assert_eq!(Asked::of(&request::login_start()), Some(Asked::Challenge));
    assert_eq!(Asked::of(&ClientMessage::Close), Some(Asked::Other));
    let kill = request::kill(1, KillSessionType::Connection);
    assert_eq!(Asked::of(&kill), Some(Asked::Kill));
}

#[test]
fn an_illegal_frame_fails_the_wait_for_its_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = Client::connect(listener.local_addr().expect("it is bound"));
    let mut server = listener.accept().expect("the client").0;
    let mut answer = OutBuffer::default();
    let mut encoder = Encoder::new(&mut answer, AUTO);
    encoder.column(&Column::signed("n")).expect("it is small");
    encoder.message(&ServerMessage::Row(Row::default())).expect("it is small");
    server.write_all(&answer.to_vec()).expect("the client is there");
    client.send_sql(AUTO, request::query("select n"));
    let trouble = client.try_reply(AUTO).expect_err("a cell is missing");
    assert!(trouble.to_string().contains("a row of 0 cells, but 1 columns"), "{trouble}");
}
