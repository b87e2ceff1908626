//! Every kind of message in every state. The table below says for each cell how the server reacts.

use std::fmt::Write;

use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::expect::Open;
use epoll_group::codec::proto::plan::ExecPlan;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::stats::Counter;
use lab::abuse::frames::frame;
use lab::engine::{Fixture, config};
use lab::xrpc::request::{kill, login_start, offer, query, savepoint, timestamps};
use lab::xrpc::{AUTO, Client, RawFrame};
use lab::{LONG, eventually};

/// First reaction of the server:
///
/// ```text
///   .       no answer: the message is ignored, or served in silence
///   +kind   an answer of that kind of the server
///   code    an ERROR with that code
///   ?code   an ERROR with that code, and the connection is closed
///   !code   a FATAL error with that code; the connection goes on
///   #code   a FATAL error with that code, and the connection is closed
///   ...x    no answer until the running request has ended; then x
/// ```
///
/// The columns: not logged in; with a challenge; then logged in, on session 0; on an unknown
/// session; on a killed session; on an open session that is idle; on a session that runs a request;
/// on a session whose result waits for credit; inside an expect block that has failed; on an id
/// that needs no opening.
const TABLE: &str = "
CON_CAPABILITIES_GET         +2       +2       +2       +2       +2       +2       +2       +2       +2       +2
CON_CAPABILITIES_SET      ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
CON_CLOSE                 ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
SESS_AUTH_START              +3     8001    !8001    !8001    !8001    !8001    !8001    !8001    !8001    !8001
SESS_AUTH_CONTINUE         8001     1045    !8001    !8001    !8001    !8001    !8001    !8001    !8001    !8001
SESS_RESET                ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
SESS_CLOSE                ?8001    ?8001    !8001    !8001    !8001       +0    ...+0    ...+0       +0     8001
SQL_STMT_EXECUTE          ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
EXPECT_OPEN               ?8001    ?8001    !8001    !8001    !8001       +0    ...+0    ...+0       +0     8001
EXPECT_CLOSE              ?8001    ?8001    !8001    !8001    !8001     5158  ...5158  ...5158     5159     8001
EXEC_PLAN_READ            ?8001    ?8001    !8001    !8001    !8001     8000  ...8000  ...8000     5159     8001
EXEC_SQL                  ?8001    ?8001    !8001    !8001    !8001      +12   ...+12   ...+12     5159      +12
PREPARE_EXECUTE           ?8001    ?8001    !8001    !8001    !8001     8001  ...8001  ...8001     8001     8001
SESS_NEW                  ?8001    ?8001       +0       +0       +0    !8001    !8001    !8001    !8001     8001
SESS_KILL_QUERY           ?8001    ?8001    !8001    !8001    !8001        .     1317     1317        .    !8001
SESS_KILL_CONN            ?8001    ?8001    !8001    !8001    !8001    !8001    !8001    !8001    !8001    !8001
TOKEN_OFFER               ?8001    ?8001    !8001    !8001    !8001        .        .      +13        .        .
GET_TSO                   ?8001    ?8001      +20      +20      +20      +20      +20      +20      +20     8001
AUTO_SP                   ?8001    ?8001    !8001    !8001    !8001       +0    ...+0    ...+0     5159     8001
GET_FILE_INFO             ?8001    ?8001    !8001    !8001    !8001     8001  ...8001  ...8001     8001     8001
TRANSFER_FILE             ?8001    ?8001    !8001    !8001    !8001     8001  ...8001  ...8001     8001     8001
FILE_MANAGE               ?8001    ?8001    !8001    !8001    !8001     8001  ...8001  ...8001     8001     8001
kind 17                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 18                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 19                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 20                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 0                    ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 11                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 13                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 14                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 15                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 16                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 21                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 22                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 23                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 26                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 99                   ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 103                  ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 114                  ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 119                  ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 127                  ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
kind 255                  ?8001    ?8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001    #8001
";

const STATES: [&str; 10] = [
    "stranger",
    "challenged",
    "zero",
    "unknown",
    "killed",
    "idle",
    "busy",
    "credit",
    "expects",
    "auto",
];

/// Messages to send: name of the row, kind and body.
fn messages() -> Vec<(String, u8, Vec<u8>)> {
    let known = [
        ("CON_CAPABILITIES_GET", ClientMessage::CapabilitiesGet),
        ("CON_CAPABILITIES_SET", ClientMessage::CapabilitiesSet(Default::default())),
        ("CON_CLOSE", ClientMessage::Close),
        ("SESS_AUTH_START", login_start()),
        ("SESS_AUTH_CONTINUE", lab::xrpc::request::login_continue("no proof")),
        ("SESS_RESET", ClientMessage::SessionReset),
        ("SESS_CLOSE", ClientMessage::SessionClose),
        ("SQL_STMT_EXECUTE", ClientMessage::StmtExecute(query("one"))),
        ("EXPECT_OPEN", ClientMessage::ExpectOpen(Open::no_error())),
        ("EXPECT_CLOSE", ClientMessage::ExpectClose),
        ("EXEC_PLAN_READ", {
            let plan_digest = Some(b"not there".to_vec());
            ClientMessage::ExecPlan(Box::new(ExecPlan { plan_digest, ..ExecPlan::default() }))
        }),
        ("EXEC_SQL", ClientMessage::ExecSql(query("one"))),
        ("PREPARE_EXECUTE", ClientMessage::PrepareExecute(Default::default())),
        ("SESS_NEW", ClientMessage::SessionNew),
        ("SESS_KILL_QUERY", kill(2, KillSessionType::Query)),
        ("SESS_KILL_CONN", kill(2, KillSessionType::Connection)),
        ("TOKEN_OFFER", offer(1)),
        ("GET_TSO", timestamps(1)),
        ("AUTO_SP", savepoint(Operation::Set, "a")),
        ("GET_FILE_INFO", ClientMessage::GetFileInfo(Default::default())),
        ("TRANSFER_FILE", ClientMessage::TransferFileData(Default::default())),
        ("FILE_MANAGE", ClientMessage::ManageFile(Default::default())),
    ];
    let mut messages: Vec<_> = known
        .into_iter()
        .map(|(name, message)| {
            let mut body = Vec::new();
            message.encode_body(&mut body);
            (name.to_owned(), message.kind(), body)
        })
        .collect();
    // Kinds of the document store, kinds that servers send, and unknown kinds.
    for kind in [17, 18, 19, 20, 0, 11, 13, 14, 15, 16, 21, 22, 23, 26, 99, 103, 114, 119, 127, 255]
    {
        messages.push((format!("kind {kind}"), kind, Vec::new()));
    }
    messages
}

/// Brings a client into a state. Returns it with the session that the message is for.
fn enter(server: &Fixture, state: &str, gate: &str) -> (Client, u64) {
    if state == "stranger" {
        return (server.stranger(), 0);
    }
    if state == "challenged" {
        let mut client = server.stranger();
        client.challenge().expect("a challenge");
        return (client, 0);
    }
    let mut client = server.client();
    client.set_offers(None);
    match state {
        "zero" => return (client, 0),
        "unknown" => return (client, 2),
        "auto" => return (client, AUTO | 2),
        _ => {}
    }
    client.new_session(2);
    match state {
        "killed" => drop(client.kill_connection(2)),
        "busy" => {
            client.send_sql(2, query(&format!("gate {gate}")));
            server.control.wait_at(gate, 1);
        }
        "credit" => {
            let mut little = query("source 10 1000");
            little.token = Some(1);
            let ticket = client.send_sql(2, little);
            client.wait_for(ticket, |reply| reply.token_done == 1);
        }
        "expects" => {
            client.expect_open(2).good();
            client.execute(2, "fail 1234").failure();
        }
        _ => {}
    }
    if state == "killed" {
        client.reply(2).failure();
    }
    (client, 2)
}

/// Formats the frames of a session as a cell of the table. `ended`: the connection has ended.
fn cell(frames: &[RawFrame], ended: bool) -> String {
    let Some(first) = frames.first() else {
        return if ended { "#".into() } else { ".".into() };
    };
    if first.kind != 1 {
        return format!("+{}", first.kind);
    }
    let failure = first.failure();
    let mark = match (failure.fatal, ended) {
        (true, true) => "#",
        (false, true) => "?",
        (true, false) => "!",
        (false, false) => "",
    };
    format!("{mark}{}", failure.code)
}

/// Statement that marks the end of the observed frames. Its error code is used nowhere else.
const MARK: &str = "fail 4242";

/// Reads the frames of a session, up to the first for which `is_end` holds. Returns them, and true
/// if the connection ended before.
fn until(
    client: &mut Client,
    session: u64,
    mut is_end: impl FnMut(&RawFrame) -> bool,
) -> (Vec<RawFrame>, bool) {
    let mut frames = Vec::new();
    while let Some(frame) = client.raw_frame() {
        if is_end(&frame) {
            return (frames, false);
        }
        if frame.session == session {
            frames.push(frame);
        }
    }
    (frames, true)
}

fn probe() -> Vec<u8> {
    let mut bytes = Vec::new();
    // The session is used for nothing else, so that its answer can be recognised.
    ClientMessage::CapabilitiesGet.encode(Dialect::Legacy, PROBE, &mut bytes).expect("small");
    bytes
}

const PROBE: u64 = 77;

/// Kind of the answer, if another thread than the reader sends it. The test has to wait for that
/// frame.
fn awaited(state: &str, name: &str) -> Option<u8> {
    match (name, state) {
        ("GET_TSO", "stranger" | "challenged" | "auto") => None,
        ("GET_TSO", _) => Some(20),
        ("SESS_NEW", "zero" | "unknown" | "killed") => Some(0),
        ("SESS_KILL_QUERY", "busy" | "credit") => Some(1),
        ("TOKEN_OFFER", "credit") => Some(13),
        _ => None,
    }
}

/// Sends one message in one state. Returns the cell of the table.
fn look(server: &Fixture, state: &str, message: &(String, u8, Vec<u8>)) -> String {
    let (name, kind, body) = message;
    let (mut client, session) = enter(server, state, name);
    let mut bytes = frame(session, *kind, body);
    bytes.extend(probe());
    // The send may fail, because the first message may close the connection.
    let _ = client.send_bytes(&bytes);
    if let Some(kind) = awaited(state, name) {
        let mut answer = None;
        let ended = until(&mut client, session, |frame| {
            answer = (frame.session == session && frame.kind == kind).then(|| frame.clone());
            answer.is_some()
        });
        assert!(!ended.1, "{name} {state}");
        if state == "busy" {
            server.control.open(name);
        }
        return cell(answer.as_slice(), false);
    }
    let is_probe = |frame: &RawFrame| frame.session == PROBE;
    let (mut frames, mut ended) = until(&mut client, session, is_probe);
    let there = matches!(state, "idle" | "expects" | "auto");
    let waits = matches!(state, "busy" | "credit");
    let mut waited = false;
    if !ended && frames.is_empty() && (there || waits) {
        if waits {
            // Lets the running request end.
            if state == "busy" {
                server.control.open(name);
            }
            client.offer(session, 1 << 20);
            let first = until(&mut client, session, |frame| matches!(frame.kind, 1 | 17)).0;
            assert!(!first.is_empty(), "{name} {state}");
            waited = true;
        }
        (frames, ended) = after_mark(&mut client, state, session);
    }
    if state == "busy" {
        server.control.open(name);
    }
    let cell = cell(&frames, ended);
    if waited && cell != "." { format!("...{cell}") } else { cell }
}

/// Returns the frames that came before the answer to a mark.
fn after_mark(client: &mut Client, state: &str, session: u64) -> (Vec<RawFrame>, bool) {
    let mut messages = vec![ClientMessage::ExecSql(query(MARK))];
    if state == "expects" {
        // Leaves the blocks first, which would skip the mark.
        messages = vec![ClientMessage::ExpectClose, ClientMessage::ExpectClose, messages.remove(0)];
    }
    let mut bytes = Vec::new();
    for message in &messages {
        message.encode(Dialect::Legacy, session, &mut bytes).expect("small");
    }
    client.send_bytes(&bytes).expect("sent");
    let mut gone = false;
    let (mut frames, ended) = until(client, session, |frame| {
        let failure = (frame.kind == 1).then(|| frame.failure());
        gone |= failure.as_ref().is_some_and(|failure| failure.text == "Session not found.");
        gone || failure.is_some_and(|failure| failure.code == 4242)
    });
    if !gone {
        frames.truncate((frames.len() + 1).saturating_sub(messages.len()));
    }
    (frames, ended)
}

#[test]
fn every_message_in_every_state() {
    let server = Fixture::start(config().max_glitches(0));
    let mut table = String::new();
    for message in messages() {
        write!(table, "{:22}", message.0).expect("a text");
        for state in STATES {
            let cell = look(&server, state, &message);
            write!(table, "{cell:>9}").expect("a text");
        }
        table.push('\n');
    }
    eventually(LONG, || server.stats().connections == 0);
    assert_eq!(server.count(Counter::Panics), 0);
    assert_eq!(server.count(Counter::ProtocolErrors), 270);
    assert_eq!(table.trim(), TABLE.trim(), "\n{table}");
}

/// Answers in a drain to messages that it does not serve: on session 0, on a busy session, on an idle
/// session, on an unknown session and on an id that needs no opening.
///
/// The drain ends the idle session first. The busy session has its reply first, and then its end, which
/// answers the message as well.
const REFUSED: [&str; 5] = ["!1053", "+12 +13 +14 +11 +17 !1053", "!1053 !1053", "!1053", "!1053"];

/// The same for each kind of message.
fn in_a_drain(name: &str) -> [&'static str; 5] {
    match name {
        "CON_CAPABILITIES_GET" => ["+2", "+2 +12 +13 +14 +11 +17 !1053", "!1053 +2", "+2", "+2"],
        "SESS_KILL_QUERY" => ["!8001", "1317 !1053", "!1053 !8001", "!8001", "!8001"],
        "SESS_KILL_CONN" => ["!8001", "!8001", "!1053 !8001", "!8001", "!8001"],
        "TOKEN_OFFER" => ["!8001", "+12 +13 +14 +11 +17 !1053", "!1053 !8001", "!8001", ""],
        _ => REFUSED,
    }
}

#[test]
fn in_a_drain_probes_kills_and_offers_are_served_and_all_else_is_refused() {
    for (name, kind, body) in messages() {
        let mut server = Fixture::start(config());
        let mut client = server.client_with_sessions([2, 3, 5]);
        // Session 5 keeps the connection if the message ends session 2.
        for busy in [2, 5] {
            client.send_sql(busy, query("gate a"));
        }
        server.control.wait_at("a", 2);
        let handle = server.server().runtime.handle();
        let drain = server.drain_on_another_thread();
        // The drain has come to the connection, because session 3 is gone.
        eventually(LONG, || handle.stats().sessions == 2);
        let sessions = [0, 2, 3, 4, AUTO | 2];
        for session in sessions {
            client.send_bytes(&frame(session, kind, &body)).expect("sent");
        }
        client.send_bytes(&probe()).expect("sent");
        // The requests go on when the server has read the messages, and the handler has seen a kill.
        let mut frames: Vec<RawFrame> = Vec::new();
        let has =
            |frames: &[RawFrame], session| frames.iter().any(|frame| frame.session == session);
        while !has(&frames, PROBE) || name == "SESS_KILL_QUERY" && !has(&frames, 2) {
            frames.push(client.raw_frame().expect("a frame"));
        }
        server.control.open("a");
        frames.extend(client.rest());
        let cells = sessions.map(|session| {
            let of = frames.iter().filter(|frame| frame.session == session);
            of.map(|frame| cell(std::slice::from_ref(frame), false)).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(cells, in_a_drain(&name), "{name}");
        drop(client);
        drain.join().expect("drained");
    }
}
