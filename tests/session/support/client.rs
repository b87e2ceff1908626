//! The client against a toy.

use std::time::Duration;

use epoll_group::codec::auth::{Reply as Login, StoredPassword};
use epoll_group::codec::chunk::{BlockKind, ChunkWriter};
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::{ClientMessage, Notice, ServerMessage, Source};
use epoll_group::codec::proto::generic::{ErrorReply, OkReply};
use epoll_group::codec::proto::plan::{AnyPlan, TableInfo};
use epoll_group::codec::proto::resultset::{ColumnMetaDataCompatible, FetchDone, Row, TokenDone};
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateOk, kill_session};
use epoll_group::codec::proto::tso::{ResultTso, auto_sp};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;

use super::servers::{Frames, with_toy};
use lab::xrpc::{AUTO, Asked, Client, Datum, Failure, Trouble, request};

const CHALLENGE: &[u8] = b"0123456789abcdefghij";

/// A server that knows a few words, and remembers what a client told it.
#[derive(Default)]
struct Toy {
    galaxy: bool,
    texts: Vec<Vec<u8>>,
    /// Rows that wait for offers.
    held: u8,
    slow: Vec<u64>,
}

impl Toy {
    fn answer(&mut self, session: u64, message: ClientMessage) -> Option<Frames> {
        let frames = match message {
            ClientMessage::AuthenticateStart(_) => {
                let auth_data = CHALLENGE.to_vec();
                vec![ServerMessage::AuthenticateContinue(AuthenticateContinue { auth_data })]
            }
            ClientMessage::AuthenticateContinue(data) => vec![login(&data.auth_data)],
            ClientMessage::SessionNew | ClientMessage::SessionClose => {
                vec![ServerMessage::Ok(OkReply::default())]
            }
            ClientMessage::AutoSavepoint(_) => vec![ServerMessage::Ok(OkReply::default())],
            ClientMessage::CapabilitiesGet => {
                vec![ServerMessage::Capabilities(Default::default())]
            }
            ClientMessage::GetTso(_) => {
                vec![ServerMessage::Tso(ResultTso { error_no: 0, ts: 99 })]
            }
            ClientMessage::ExecSql(statement) => {
                let text = match statement.source() {
                    Source::Cached(digest) => {
                        let of = |text: &&Vec<u8>| request::digest(text) == digest;
                        match self.texts.iter().find(of) {
                            Some(text) => text.clone(),
                            None => return Some(vec![(session, miss())]),
                        }
                    }
                    _ => statement.stmt().to_vec(),
                };
                self.texts.push(text.clone());
                return self.statement(session, &text);
            }
            ClientMessage::ExecPlan(plan) if plan.plan.is_none() => vec![miss()],
            ClientMessage::ExecPlan(_) => self.numbers(1),
            ClientMessage::TokenOffer(_) if self.held > 1 => {
                self.held -= 1;
                vec![row(self.held), ServerMessage::TokenDone(TokenDone::default())]
            }
            ClientMessage::TokenOffer(_) => {
                self.held = 0;
                vec![ServerMessage::FetchDone(FetchDone::default()), ServerMessage::StmtExecuteOk]
            }
            ClientMessage::SessionKill(kill) => {
                self.slow.retain(|&slow| slow != session);
                vec![ServerMessage::Error(match kill.r#type() {
                    kill_session::Type::Query => {
                        ErrorReply::error(1317, b"70100", "Query execution was interrupted")
                    }
                    kill_session::Type::Connection => {
                        ErrorReply::fatal(8001, b"70100", "Session is killing.")
                    }
                })]
            }
            _ => return None,
        };
        Some(frames.into_iter().map(|frame| (session, frame)).collect())
    }

    fn statement(&mut self, session: u64, text: &[u8]) -> Option<Frames> {
        let frames = match text {
            b"numbers" => self.numbers(3),
            b"chunk" => chunk(),
            b"update" => vec![
                ServerMessage::Notice(Notice::Warning(Default::default()).to_frame()),
                ServerMessage::Notice(Notice::InsertId(7).to_frame()),
                ServerMessage::Notice(Notice::RowsAffected(3).to_frame()),
                ServerMessage::StmtExecuteOk,
            ],
            b"held" => {
                self.held = 4;
                vec![column(self.galaxy), row(5), ServerMessage::TokenDone(TokenDone::default())]
            }
            b"slow" => {
                self.slow.push(session);
                vec![]
            }
            b"wake" => {
                // All slow requests are answered first, the newest before the others.
                let mut frames: Frames = Vec::new();
                for slow in self.slow.drain(..).rev() {
                    frames.push((slow, ServerMessage::Notice(Notice::RowsAffected(0).to_frame())));
                    frames.push((slow, ServerMessage::StmtExecuteOk));
                }
                frames.extend(self.numbers(1).into_iter().map(|frame| (session, frame)));
                return Some(frames);
            }
            b"bad" => vec![ServerMessage::StmtExecuteOk],
            b"short row" => vec![column(false), ServerMessage::Row(Row { field: vec![] })],
            b"gone" => return None,
            _ => vec![ServerMessage::Error(ErrorReply::error(1064, b"42000", "no word of mine"))],
        };
        Some(frames.into_iter().map(|frame| (session, frame)).collect())
    }

    fn numbers(&self, count: u8) -> Vec<ServerMessage> {
        let mut frames = vec![column(self.galaxy)];
        frames.extend((1..=count).map(row));
        frames.push(ServerMessage::FetchDone(FetchDone::default()));
        frames.push(ServerMessage::StmtExecuteOk);
        frames
    }
}

fn login(data: &[u8]) -> ServerMessage {
    let stored = StoredPassword::of(b"secret");
    let accepted = Login::parse(data).is_ok_and(|reply| {
        reply.user == b"root" && stored.accepts(CHALLENGE, reply.proof.as_ref())
    });
    if accepted {
        ServerMessage::AuthenticateOk(AuthenticateOk::default())
    } else {
        ServerMessage::Error(ErrorReply::error(1045, b"HY000", "Invalid user or password"))
    }
}

fn miss() -> ServerMessage {
    ServerMessage::Error(ErrorReply::error(8000, b"HY000", "do not exist query!"))
}

fn column(galaxy: bool) -> ServerMessage {
    let column = Column::signed("n").to_message();
    if !galaxy {
        return ServerMessage::ColumnMetaData(column);
    }
    ServerMessage::ColumnMetaDataGalaxy(ColumnMetaDataCompatible {
        r#type: column.r#type,
        original_type: column.original_type,
        name: column.name,
        ..ColumnMetaDataCompatible::default()
    })
}

fn row(number: u8) -> ServerMessage {
    ServerMessage::Row(Row { field: vec![vec![number * 2]] })
}

/// Eleven columns, which go into two frames.
fn chunk() -> Vec<ServerMessage> {
    let mut writer = ChunkWriter::new(&[BlockKind::Signed; 11]);
    for number in 1..4 {
        writer.row(&[Value::Signed(number); 11]).expect("the kinds are right");
    }
    let mut frames = vec![column(false); 11];
    for body in writer.bodies(1 << 20).expect("small") {
        frames.push(ServerMessage::Unknown(21, body));
    }
    frames.push(ServerMessage::FetchDone(FetchDone::default()));
    frames.push(ServerMessage::StmtExecuteOk);
    frames
}

/// Runs a test with a client of a toy that has session 2.
fn with_client(test: impl FnOnce(&mut Client)) {
    let mut toy = Toy::default();
    with_toy(
        Dialect::Legacy,
        |session, message| toy.answer(session, message),
        |addr| {
            let mut client = Client::logged_in(addr, "root", "secret");
            client.new_session(2);
            test(&mut client);
        },
    );
}

#[test]
fn a_refused_login_is_said_and_another_may_follow() {
    let mut toy = Toy::default();
    with_toy(
        Dialect::Legacy,
        |session, message| toy.answer(session, message),
        |addr| {
            let mut client = Client::connect(addr);
            client.probe();
            for (user, password) in [("root", "wrong"), ("nobody", "secret"), ("root", "")] {
                let failure = client.try_login(user, password).expect_err("it is wrong");
                assert_eq!((failure.code, failure.fatal), (1045, false));
            }
            assert_eq!(client.prove(*b"nonsense").map_err(|failure| failure.code), Err(1045));
            client.login("root", "secret");
        },
    );
}

#[test]
fn replies_have_what_the_server_said() {
    with_client(|client| {
        let reply = client.execute(2, "numbers").good();
        assert_eq!(reply.rows, [[Datum::from(1)], [Datum::from(2)], [Datum::from(3)]]);
        assert_eq!(reply.labels(), ["n"]);
        let reply = client.run(2, request::update("update")).good();
        assert_eq!((reply.affected, reply.insert_id), (Some(3), Some(7)));
        assert_eq!(reply.warnings.len(), 1);
        let failure = client.execute(2, "?").failure();
        let (state, text) = ("42000".into(), "no word of mine".into());
        assert_eq!(failure, Failure { fatal: false, code: 1064, state, text });
        let reply = client.execute(2, "chunk").good();
        assert_eq!((reply.chunks, reply.rows.len(), reply.rows[2].len()), (2, 3, 11));
        assert_eq!(reply.rows[2][10], Datum::from(3));
        assert_eq!(client.timestamps(2, 1).timestamp, Some(99));
        client.savepoint(2, auto_sp::Operation::Set, "a").good();
        client.close(2).good();
        client.forget_rows();
        client.send_sql(4 | AUTO, request::query("numbers"));
        let reply = client.reply(4 | AUTO).good();
        assert_eq!((reply.row_count, reply.rows.len()), (3, 0));
    });
}

#[test]
fn texts_and_plans_are_sent_where_their_digest_is_not_known() {
    with_client(|client| {
        let requests = |client: &mut Client| {
            let before = client.send_sql(2, request::query("numbers"));
            client.reply_to(before).good();
            before
        };
        let first = requests(client);
        client.run_cached(2, request::query("numbers")).good();
        // One request, because the toy had the text.
        assert_eq!(requests(client), first + 2);
        client.run_cached(2, request::query("update")).good();
        assert_eq!(requests(client), first + 5);
        let table = TableInfo::new(Scalar::string("t", None), None);
        let plan = AnyPlan::table_scan(table, None);
        assert_eq!(client.run_plan_cached(2, request::plan(plan, [])).one(), Datum::from(1));
    });
}

#[test]
fn replies_of_other_sessions_are_kept_while_one_is_waited_for() {
    with_client(|client| {
        for session in [3, 4] {
            client.queue(session, &ClientMessage::SessionNew);
            client.queue(session, &ClientMessage::ExecSql(request::update("slow")));
        }
        client.flush();
        assert_eq!(client.execute(2, "wake").one(), Datum::from(1));
        assert_eq!(client.waiting(), []);
        for session in [4, 3] {
            assert!(client.reply(session).good().ok.is_some());
            assert_eq!(client.reply(session).good().affected, Some(0));
        }
    });
}

#[test]
fn offers_are_made_as_long_as_they_are_asked_for_or_by_hand() {
    with_client(|client| {
        let reply = client.execute(2, "held").good();
        assert_eq!((reply.rows.len(), reply.token_done), (4, 4));

        client.set_offers(None);
        let ticket = client.send_sql(2, request::query("held"));
        for count in 1..=4 {
            let reply = client.wait_for(ticket, |reply| reply.token_done == count);
            assert_eq!((reply.rows.len(), reply.done), (count, false));
            client.set_deadline(Duration::from_millis(10));
            let waited = client.wait(|client| client.so_far(ticket).rows.len() > count);
            assert_eq!(waited, Err(Trouble::Late), "nothing comes without an offer");
            client.set_deadline(lab::xrpc::DEADLINE);
            client.offer(2, 1);
        }
        client.reply(2).good();
    });
}

#[test]
fn a_kill_ends_a_query_or_a_session() {
    with_client(|client| {
        client.send_sql(2, request::query("slow"));
        client.kill_query(2);
        assert_eq!(client.reply(2).failure().code, 1317);
        client.send_sql(2, request::query("slow"));
        client.send_sql(2, request::query("slow"));
        client.kill_connection(2);
        for _ in 0..3 {
            let reply = client.reply(2);
            assert!(reply.shared && reply.failure().fatal);
        }
        client.new_session(2);
        client.execute(2, "numbers").good();
    });
}

#[test]
fn what_is_illegal_is_told_and_so_is_the_end() {
    with_client(|client| {
        client.send_sql(2, request::query("bad"));
        let trouble = client.try_reply(2).expect_err("no rows were affected");
        let text =
            "illegal: session 0x2: SQL_STMT_EXECUTE_OK in Start of Statement, an open session";
        assert_eq!(trouble.to_string(), text);
    });
    with_client(|client| {
        client.send_sql(2, request::query("short row"));
        let trouble = client.try_reply(2).expect_err("a cell is missing");
        assert!(trouble.to_string().contains("a row of 0 cells, but 1 columns"), "{trouble}");
    });
    with_client(|client| {
        client.send_sql(2, request::query("gone"));
        let trouble = client.try_reply(2).expect_err("the server went");
        assert!(trouble.is_end(), "{trouble}");
    });
}

#[test]
fn frames_can_be_sent_and_read_by_hand() {
    with_client(|client| {
        client.send_bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0]).expect("sent");
        client.send_bytes(&[0, 110]).expect("sent");
        let frame = client.raw_frame().expect("an answer");
        assert_eq!((frame.session, frame.kind), (9, 0));
        client.send_bytes(&[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 110]).expect("sent");
        client.asked(9, Asked::New);
        client.reply(9).good();
        client.send_sql(9, request::query("?"));
        assert_eq!(client.raw_frame().expect("an answer").failure().code, 1064);
        client.finish();
        assert_eq!(client.rest(), []);
    });
}

#[test]
fn the_older_dialect_is_spoken() {
    let mut toy = Toy { galaxy: true, ..Toy::default() };
    let galaxy = Dialect::Galaxy { version: 0 };
    with_toy(
        galaxy,
        |session, message| toy.answer(session, message),
        |addr| {
            let mut client = Client::connect_with(addr, galaxy);
            client.chop(7);
            client.login("root", "secret");
            client.new_session(2);
            let reply = client.execute(2, "numbers").good();
            assert_eq!((reply.rows.len(), reply.labels()), (3, vec!["n".to_owned()]));
        },
    );
}
