//! End to end: a server, the client, and what the shell prints.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use epoll_group::net::Listener;
use epoll_group::session::{
    Account, AuthError, Cancel, Deferred, Login, Peer, Reply, Request, Server, Service,
    SessionError, SessionId,
};

use super::*;

/// Against hanging.
const LONG: Duration = Duration::from_secs(30);

/// A shell on a server, by default one of a hundred rows; what it prints goes into a `Vec`.
struct Both<S = Node> {
    running: Running,
    shell: Shell<Vec<u8>>,
    _client: Runtime,
    server: S,
}

impl Both {
    fn start() -> Self {
        let runtime = Runtime::builder().start().expect("it starts");
        let node = Node::start(runtime, ("root", "secret"), "sbtest", 100).expect("it serves");
        let address = node.address().to_string();
        Self::on(node, address)
    }
}

impl<S> Both<S> {
    fn on(server: S, address: String) -> Self {
        let runtime = Runtime::builder().start().expect("it starts");
        let options = Options::new(address.as_str(), "root")
            .password("secret")
            .session_timeout(LONG)
            .connect_timeout(LONG)
            .login_timeout(LONG)
            .request_timeout(LONG);
        let client = Client::new(&runtime.handle(), options).expect("good options");
        let running = Running::default();
        let mut shell = Shell::new(client, address, running.clone(), Vec::new());
        shell.settings.timing = false;
        Self { running, shell, _client: runtime, server }
    }

    /// Runs the text. Returns its output and how it ended.
    fn run(&mut self, text: &str) -> (String, Result<Ended, String>) {
        let done = batch(&mut self.shell, text.lines().map(|line| Ok(line.to_owned())));
        (self.shell.take_output(), done.map_err(|error| error.to_string()))
    }

    #[track_caller]
    fn printed(&mut self, text: &str) -> String {
        let (printed, done) = self.run(text);
        assert_eq!(done, Ok(Ended::Ran), "{text}: {printed}");
        printed
    }
}

#[test]
fn a_result_is_a_table() {
    let mut both = Both::start();
    let printed = both.printed("select id, 'x' as c, null as n from sbtest1 where id in (9, 10);");
    let expected = "
 id | c | n
----+---+------
  9 | x | NULL
 10 | x | NULL
(2 rows)
";
    assert_eq!(printed, expected[1..]);
    let chunks = both
        .printed("\\chunks on\nselect id, 'x' as c, null as n\nfrom sbtest1 where id in (9, 10)");
    assert!(chunks.ends_with(&expected[1..]), "{chunks}");
}

#[test]
fn a_change_says_what_it_changed() {
    let mut both = Both::start();
    let printed = both.printed(
        "create table t (id bigint primary key auto_increment, c text);\n\
         insert into t (c) values ('a;b'), ('c'); update t set c = 'd';",
    );
    assert_eq!(printed, "(0 rows changed)\n(2 rows changed, insert id 1)\n(2 rows changed)\n");
}

#[test]
fn the_first_failure_ends_a_script_but_not_the_session() {
    let mut both = Both::start();
    let (printed, done) = both.run("select 1; select * from missing; select 2;");
    assert!(printed.contains("(1 row)") && !printed.contains('2'), "{printed}");
    let error = done.expect_err("there is no such table");
    assert!(error.contains("1146"), "{error}");
    assert_eq!(both.printed("select 3 as three\\G"), "--- row 1 ---\nthree: 3\n(1 row)\n");
    let (_, done) = both.run("\\nothing");
    assert!(done.expect_err("it is none").contains("\\help"));
    for (text, error) in [
        ("\\timing off select 1;", "\\timing takes at most one word: 3 exceeds 1"),
        ("\\cut 5 6", "\\cut takes at most one word: 2 exceeds 1"),
        ("\\quit now please", "\\quit takes at most one word: 2 exceeds 1"),
    ] {
        assert_eq!(both.run(text), (String::new(), Err(error.to_owned())));
    }
}

#[test]
fn nothing_is_run_behind_a_quit() {
    let mut both = Both::start();
    let texts = ["select 1 as one\\G\n\\quit\nselect 2 as two\\G", "select 3 as three\\G"];
    execute(&mut both.shell, &texts.map(str::to_owned)).expect("no failure");
    assert_eq!(both.shell.take_output(), "--- row 1 ---\none: 1\n(1 row)\n");
    assert_eq!(both.run("-- nothing").1, Ok(Ended::Nothing));
}

#[test]
fn the_status_names_the_server_and_the_connections() {
    let mut both = Both::start();
    let printed = both.printed("\\status");
    let address = both.server.address().to_string();
    for part in [address.as_str(), "X-Cluster", "session ", "4 connections; 1 made", "ready"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}

#[test]
fn a_prompt_goes_on_behind_what_was_interrupted() {
    let both = Both::start();
    both.running.prompts();
    assert_eq!(both.running.interrupt(), None, "nothing runs");
    let ((printed, done), mut both) = interrupt(both, "select sleep(1000);");
    // MySQL's `sleep` gives 1 when it was interrupted; a statement that was not begun fails.
    match done {
        Ok(_) => assert!(printed.contains("(1 row)"), "{printed}"),
        Err(error) => assert!(error.contains("1317"), "{error}"),
    }
    assert!(both.printed("select 1;").ends_with("(1 row)\n"));
}

#[test]
fn a_script_stops_behind_what_was_interrupted() {
    let both = Both::start();
    let ((printed, done), mut both) = interrupt(both, "select sleep(1000);\nselect 7 as behind;");
    assert!(!printed.contains("behind"), "{printed}");
    assert!(both.running.is_interrupted());
    let error = done.expect_err("the script stopped");
    assert!(error.contains("1317") || error == "interrupted by SIGINT", "{error}");
    // Nothing runs, so the program would end at once, and no statement begins before it does.
    assert_eq!(both.running.interrupt(), Some(INTERRUPTED));
    assert_eq!(both.run("select 8;"), (String::new(), Err("interrupted by SIGINT".to_owned())));
}

/// Answers no request.
#[derive(Default)]
struct Silent(Mutex<Vec<Deferred>>);

impl Service for Silent {
    type Session = ();

    fn authenticate(&self, _: &Login<'_>) -> Result<Account, AuthError> {
        Ok(Account::new("root"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        _: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        self.0.lock().expect("no panic").push(reply.defer());
        Ok(())
    }
}

#[test]
fn a_status_is_interrupted() {
    let runtime = Runtime::builder().start().expect("it starts");
    let server = Server::new(Silent::default());
    let listener: Listener = runtime.listen("127.0.0.1:0", server).expect("it serves");
    let address = listener.local_addr().to_string();
    let both = Both::on((runtime, listener), address);
    both.running.prompts();
    let ((printed, done), _) = interrupt(both, "\\status");
    assert_eq!(done, Ok(Ended::Ran));
    assert!(printed.contains("1317"), "{printed}");
}

/// Runs a text, and interrupts it until it ends.
fn interrupt<S: Send + 'static>(
    mut both: Both<S>,
    text: &'static str,
) -> ((String, Result<Ended, String>), Both<S>) {
    let running = both.running.clone();
    let script = thread::spawn(move || (both.run(text), both));
    // An interrupt before the statement is sent has no effect, so it is repeated.
    while !script.is_finished() {
        if running.is_busy() {
            running.interrupt();
        }
        thread::park_timeout(Duration::from_millis(1));
    }
    script.join().expect("it ends")
}

#[test]
fn a_session_that_ended_is_replaced() {
    let mut both = Both::start();
    both.printed("begin; insert into sbtest1 (id) values (1000);");
    both.shell.break_session();
    let printed = both.printed("select count(*) as n from sbtest1;");
    let expected = "\
the session has ended; another begins, without its transaction
   n
-----
 100
(1 row)
";
    assert_eq!(printed, expected);
}

#[test]
fn the_script_of_the_demo_gives_what_it_should() {
    let mut both = Both::start();
    demo::run(&mut both.shell).expect("each outcome is right");
    assert!(both.shell.take_output().contains("it's; a plum"));
}
