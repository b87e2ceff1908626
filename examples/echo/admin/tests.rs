use std::io::{Read, Write};
use std::net::TcpStream;

use epoll_group::Class;

use super::*;

fn runtime() -> Runtime {
    Runtime::builder().groups(1).threads_per_group(2).start().expect("it starts")
}

#[test]
fn live_tunables_change_and_others_are_refused_by_name() {
    let runtime = runtime();
    let admin = Admin::new(&runtime, || 7);
    assert_eq!(admin.answer("set max_connections 100\r\n"), Ok("max_connections 100\n".into()));
    assert_eq!(admin.answer("set net_write_timeout = 5 s"), Ok("net_write_timeout 5s\n".into()));
    assert_eq!(runtime.config().get("max_connections").as_deref(), Some("100"));
    for (line, expected) in [
        ("set epoll_groups 2", "epoll_groups counts at the start only: it is 1, asked for 2"),
        ("set max_threads 0", "max_threads 0 is outside 2..=32768"),
        ("set max_thread 9", "unknown tunable \"max_thread\", did you mean max_threads?"),
        ("set max_threads", "set needs a name and a value, such as: set max_threads 256"),
        ("set", "set needs a name and a value, such as: set max_threads 256"),
        ("stats now", "stats takes no argument, not \"now\""),
        ("\u{1b}[2J", "unknown command \"\\u{1b}[2J\"; help lists them"),
    ] {
        assert_eq!(admin.answer(line), Err(expected.into()), "{line}");
    }
    let config = admin.answer("config").expect("it has no argument");
    assert!(config.contains("\nmax_connections 100  # 1..=16777216, live\n"), "{config}");
    assert_eq!(config.lines().count(), Config::FIELDS.len());
    assert!(admin.answer("stats").expect("as above").contains("\necho_requests 7\n"));
}

#[test]
fn no_answer_has_an_empty_line_inside() {
    let runtime = runtime();
    let admin = Admin::new(&runtime, || 0);
    admin.answer("set enable_perf_hist on").expect("it is live");
    runtime.handle().spawn_wait(|| ()).expect("there is room");
    for command in ["stats", "text", "buckets", "config", "reset", "help"] {
        let answer = admin.answer(command).expect(command);
        assert!(!answer.contains("\n\n") && !answer.starts_with('\n'), "{command}: {answer}");
    }
}

#[test]
fn bad_input_is_answered_and_bounded() {
    let runtime = runtime();
    let admin = runtime.handle().with_class(Class::Admin);
    let listener = admin.listen("127.0.0.1:0", Admin::new(&runtime, || 0)).expect("it listens");
    let ask = |bytes: &[u8]| {
        let address = listener.local_addr().to_string();
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers and closes");
        answer
    };
    let unknown = "error: unknown command \"dance\"; help lists them\n\n";
    assert_eq!(
        ask(b"dance\n\n\xff\nquit\n"),
        format!("{unknown}error: this command is not UTF-8\n\n")
    );
    let too_long = "error: a command is at most 1024 bytes long\n\n";
    assert_eq!(ask(&[b'a'; LONGEST + 1]), too_long);
    let mut long = vec![b'a'; LONGEST + 1];
    long.push(b'\n');
    assert_eq!(ask(&long), too_long);
    assert_eq!(ask(b"POST / HTTP/1.1\nset max_connections 1\n"), "");
    assert_eq!(runtime.config().get("max_connections").as_deref(), Some("65536"));
}
