//! The status page and its metrics, over real sockets.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use epoll_group::net::{ListenOptions, Listener};
use epoll_group::stats::{Counter, Stage};
use epoll_group::status::Status;
use lab::protocol::{Bytes, echo};
use lab::workers::{Gate, all_rest, only_one_worker};
use lab::{Kind, LONG, Peer, Server, config, eventually, prometheus};

/// A server with an odd name for all that has one, and its page.
fn start(config: epoll_group::Config) -> (Server, Listener) {
    let server = Server::start(Kind::Tcp, config, Bytes::new(echo));
    let page = Status::new(&server.runtime.handle(), "a <b> & \"c\"")
        .listener("clients\\\n\"", &server.listener)
        .table("pool <1>", &["in use", "idle"], || {
            vec![("eu\"1".into(), vec![3, 1234]), ("eu<2".into(), vec![0, 7])]
        })
        .listen(0)
        .expect("a page");
    (server, page)
}

struct Answer {
    status: String,
    head: String,
    body: String,
}

/// Reads one answer. That to `HEAD` has no body.
fn answer(peer: &mut Peer, head_only: bool) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(peer.receive_one().expect("more of the head"));
    }
    let head = String::from_utf8(head).expect("text");
    let length = head.split("Content-Length: ").nth(1).and_then(|rest| rest.lines().next());
    let length = if head_only { 0 } else { length.expect("told").parse().expect("a number") };
    let status = head.lines().next().expect("a line")["HTTP/1.1 ".len()..].to_owned();
    let body = String::from_utf8(peer.receive(length)).expect("text");
    Answer { status, head, body }
}

fn get(page: &Listener, path: &str) -> String {
    let mut peer = Peer::connect(page.local_addr());
    peer.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let answer = answer(&mut peer, false);
    assert_eq!(answer.status, "200 OK");
    answer.body
}

#[test]
fn the_page_shows_names_as_text_and_numbers_of_now() {
    let (server, page) = start(config().enable_perf_hist(true));
    let mut peer = server.peer();
    peer.echo(b"hello");
    let text = get(&page, "/?now");
    for part in [
        "<title>a &lt;b&gt; &amp; &quot;c&quot;</title>",
        "<th scope=\"row\">clients\\\n&quot;, 127.0.0.1:",
        "<h2>pool &lt;1&gt;</h2>",
        "<th scope=\"row\">eu&lt;2<td>0<td>7\n",
        "<td>1\u{202f}234\n",
        "<th scope=\"row\">eg-0-0<td>base<td>the runtime started<td>",
        "<dd id=\"Connections\">2 ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(text.matches("<svg ").count(), Stage::ALL.len());
    assert!(!text.contains("<b>"), "a name is HTML");
    assert!(text.len() < 100_000, "{} bytes", text.len());
    // The page loads nothing from elsewhere.
    assert!(!text.contains(" src=") && !text.contains("://"), "{text}");
}

#[test]
fn without_histograms_the_page_says_how_to_get_them() {
    let (_server, page) = start(config());
    let text = get(&page, "/");
    assert!(text.contains("enable_perf_hist") && !text.contains("<svg"), "{text}");
}

#[test]
fn the_metrics_are_those_of_the_runtime_under_names_of_prometheus() {
    let (server, page) = start(config().enable_perf_hist(true));
    let mut peer = server.peer();
    (0..100).for_each(|_| peer.echo(b"hello"));
    let before = server.stats();
    let families = prometheus::parse(&get(&page, "/metrics")).expect("well-formed");
    let after = server.stats();
    let value = |name: &str| families[&format!("epoll_group_{name}")].samples[0].value;
    for &counter in Counter::ALL {
        let name = match counter {
            Counter::BytesReceived => "received_bytes".into(),
            Counter::BytesSent => "sent_bytes".into(),
            Counter::BacklogBytesQueued => "backlog_queued_bytes".into(),
            other => other.name().to_owned(),
        };
        let found = value(&format!("{name}_total"));
        let range = before.get(counter) as f64..=after.get(counter) as f64;
        assert!(range.contains(&found), "{name}: {found} of {range:?}");
    }
    assert_eq!(value("connections"), 2.0);
    for stage in Stage::ALL {
        let family = &families[&format!("epoll_group_{}_seconds", stage.name())];
        assert_eq!((family.kind.as_str(), family.help.as_str()), ("histogram", stage.help()));
        let count = family.samples.last().expect("samples").value;
        let most = after.histogram(*stage).expect("on").count() as f64;
        assert!(count <= most, "{}: {count} of {most}", stage.name());
    }
    let table = &families["epoll_group_table"].samples;
    assert_eq!(table.len(), 8);
    assert_eq!((table[5].labels["row"].as_str(), table[5].value), ("eu\"1", 1234.0));
    assert_eq!(table[5].labels["column"], "idle");
    assert!(table[1].labels["row"].starts_with("clients\\\n\", 127.0.0.1:"), "{table:?}");
    assert_eq!((table[1].labels["column"].as_str(), table[1].value), ("accepted", 1.0));
}

/// Limits of a request.
const HEAD_BYTES: usize = 8 << 10;
const HEADERS: usize = 64;

/// Requests with their status, and whether the answer has a body.
const REQUESTS: [(&str, &str, bool); 4] = [
    ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", true),
    ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", false),
    ("\r\nGET /none HTTP/1.1\r\nHost: x\r\n\r\n", "404 Not Found", true),
    ("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "200 OK", false),
];

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let (_server, page) = start(config());
    let all: String = REQUESTS.iter().map(|(text, ..)| *text).collect();
    let all = all.repeat(8);
    for piece in [1, 7, all.len()] {
        let mut peer = Peer::connect(page.local_addr());
        let mut other = peer.other();
        std::thread::scope(|scope| {
            scope.spawn(|| all.as_bytes().chunks(piece).for_each(|part| peer.send(part)));
            for (_, status, has_body) in REQUESTS.iter().cycle().take(32) {
                let answer = answer(&mut other, !has_body);
                assert_eq!(answer.status, *status);
                assert!(answer.head.contains("\r\nConnection: keep-alive\r\n"), "{}", answer.head);
            }
        });
        // Requests before the end of the stream have answers too.
        peer.send(all.as_bytes());
        peer.finish();
        let rest = String::from_utf8(peer.receive_to_finish()).expect("text");
        assert_eq!(rest.matches("HTTP/1.1 ").count(), 32);
    }
}

#[test]
fn a_peer_that_does_not_read_holds_bounded_memory_and_gets_every_answer_later() {
    const REQUESTS: usize = 300;
    let low = 16 << 10;
    let (server, page) = start(config().write_low_watermark_bytes(low));
    let mut slow = Peer::try_connect(page.local_addr(), Some(4096)).expect("connected");
    let requests = "GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(REQUESTS);
    let mut writer = slow.other();
    std::thread::scope(|scope| {
        scope.spawn(|| writer.send(requests.as_bytes()));
        eventually(LONG, || server.stats().paused_connections == 1);
        all_rest(&server.runtime);
        // One page beyond the low watermark, and the requests of one receive.
        let most = (low + (64 << 10) + (64 << 10) + (64 << 10)) as u64;
        let stats = server.stats();
        assert!(stats.buffered_bytes <= most, "{stats}");
        assert!(!get(&page, "/metrics").is_empty(), "others are served meanwhile");
        let answers = (0..REQUESTS).map(|_| answer(&mut slow, false).status);
        assert!(answers.into_iter().all(|status| status == "200 OK"));
    });
    assert!(server.count(Counter::ReadsPaused) > 0);
}

#[test]
fn bad_requests_are_refused_and_their_connection_ends() {
    let (server, page) = start(config());
    let [bad, long] = ["400 Bad Request", "431 Request Header Fields Too Large"];
    let head = |bytes: usize| format!("GET / HTTP/1.0\r\nx: {}", "y".repeat(bytes - 19));
    let many = |headers| format!("GET / HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(headers));
    let cases = [
        ("\x16\x03\x01\x02\x00", bad),
        ("GET / HTTP/2.0\r\n", bad),
        ("GET / HTTP/1.1\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", bad),
        ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET", bad),
        ("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0", bad),
        ("DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", "405 Method Not Allowed"),
        (&head(HEAD_BYTES), long),
        (&many(HEADERS + 1), long),
    ];
    for (number, (request, status)) in (1..).zip(cases) {
        let mut peer = Peer::connect(page.local_addr());
        peer.send(request.as_bytes());
        let answer = answer(&mut peer, false);
        assert_eq!((answer.status.as_str(), answer.body), (status, format!("{status}\n")));
        assert_eq!(answer.head.contains("\r\nAllow: GET, HEAD\r\n"), status.starts_with("405"));
        assert_eq!(peer.receive_to_finish(), b"", "{request}");
        drop(peer);
        eventually(LONG, || server.count(Counter::ClosedByHandler) == number);
    }
}

#[test]
fn a_refused_head_request_behind_a_blank_line_gets_no_body() {
    let (_server, page) = start(config());
    let mut peer = Peer::connect(page.local_addr());
    peer.send(b"\r\nHEAD / HTTP/1.1\r\n\r\n");
    assert_eq!(answer(&mut peer, true).status, "400 Bad Request");
    assert_eq!(peer.receive_to_finish(), b"");
}

#[test]
fn a_connection_ends_after_its_answer_if_the_peer_asks_for_that() {
    let (_server, page) = start(config());
    let filler = "y".repeat(HEAD_BYTES - 27);
    for request in [
        "GET /none HTTP/1.0\r\n\r\n",
        "GET /none HTTP/1.1\r\nHost: x\r\nConnection: a, Close\r\n\r\nGET / HTTP/1.1\r\n",
        "GET http://x/none?y HTTP/1.0\r\nContent-Length: 0\r\n\r\n",
        &format!("GET /none HTTP/1.0\r\n{}\r\n", "a: b\r\n".repeat(HEADERS)),
        &format!("GET /none HTTP/1.0\r\nx: {filler}\r\n\r\n"),
    ] {
        let mut peer = Peer::connect(page.local_addr());
        peer.send(request.as_bytes());
        let text = String::from_utf8(peer.receive_to_finish()).expect("text");
        assert!(text.contains("Connection: close") && text.ends_with("404 Not Found\n"), "{text}");
    }
}

#[test]
fn slow_and_idle_peers_of_the_page_are_ended_by_the_time_outs() {
    const SHORT: Duration = Duration::from_millis(30);
    let server = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let start = |options| {
        let status = Status::new(&server.runtime.handle(), "");
        status.listen_with("127.0.0.1:0", options).expect("a page")
    };
    let page = start(ListenOptions::new().frame_timeout(SHORT));
    let mut peer = Peer::connect(page.local_addr());
    peer.send(b"GET / HTTP/1.1\r\n");
    assert_eq!(peer.receive_to_finish(), b"");
    drop(peer);
    server.wait_for(Counter::ClosedFrameTimeout, 1);
    let page = start(ListenOptions::new().idle_timeout(SHORT));
    let mut peer = Peer::connect(page.local_addr());
    peer.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    answer(&mut peer, true);
    assert_eq!(peer.receive_to_finish(), b"");
    drop(peer);
    server.wait_for(Counter::ClosedIdleTimeout, 1);
}

#[test]
fn connections_to_the_page_are_few() {
    let (server, page) = start(config());
    let mut peers: Vec<_> = (0..64).map(|_| Peer::connect(page.local_addr())).collect();
    eventually(LONG, || page.stats().open == 64);
    assert_eq!(Peer::connect(page.local_addr()).receive_to_finish(), b"");
    assert_eq!(page.stats().refused_max_connections, 1);
    server.wait_for(Counter::ConnectionsRefusedLimit, 1);
    peers[63].send(REQUESTS[3].0.as_bytes());
    answer(&mut peers[63], true);
}

#[test]
fn the_page_answers_while_all_other_threads_wait() {
    let runtime = only_one_worker();
    let page = Status::new(&runtime.handle(), "").listen(0).expect("a page");
    let gate = Gate::default();
    let waits = gate.clone();
    runtime.handle().spawn(move || waits.pass()).expect("room");
    gate.wait_for(1);
    let text = get(&page, "/");
    assert!(text.contains("<td>reserve<td>"), "{text}");
    assert_eq!(gate.held(), 1, "it has answered later");
    gate.open();
}

#[test]
fn curl_reads_the_page() {
    let (_server, page) = start(config());
    let url = format!("http://{}/metrics", page.local_addr());
    let Ok(output) = Command::new("curl").args(["-sSf", &url, &url]).output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: there is no curl");
        return;
    };
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("# HELP epoll_group_workers ").count(), 2, "{text}");
}
