//! Sessions over connections that are slow, cut to pieces, silent, corrupted, closed and reset on the
//! way: every request has exactly one outcome, both sides agree on it, and others feel nothing.
#![expect(clippy::print_stderr, reason = "the seed, to repeat a failed run")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Answer, Client, Error, Fate, Options, Pending, Session};
use epoll_group::codec::value::Value;
use epoll_group::net::Listener;
use epoll_group::session::Server;
use epoll_group::stats::Counter;
use lab::both::options;
use lab::faults::{Coalesce, Cut, Faults, How, Mark, Relay, Script, Stop, Totals, relay};
use lab::random::{Random, seed};
use lab::tagged::Tagged;
use lab::{LONG, eventually, often};

const THREADS: u64 = 4;
/// First tag of the client whose connections are not corrupted. No flipped bit turns another
/// client's tag into one of these.
const APART: u64 = 1 << 40;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server, a relay before it, and a runtime for clients.
struct Rig {
    service: Arc<Tagged>,
    server: Runtime,
    _listener: Listener,
    address: SocketAddr,
    relay: Relay,
    clients: Runtime,
}

/// Outcomes of requests.
#[derive(Debug, Default)]
struct Outcomes {
    asked: u64,
    answered: Vec<u64>,
    refused: Vec<u64>,
    not_sent: Vec<u64>,
    unknown: Vec<u64>,
    /// Answers that were not those of their requests.
    wrong: u64,
}

enum Outcome {
    Answered,
    Wrong,
    Failed(Error),
}

impl Rig {
    fn start(script: Script) -> Self {
        let config = lab::engine::config().half_close_timeout(ms(100));
        let server = Runtime::builder().config(config).start().expect("started");
        let service = Arc::new(Tagged::new(server.handle()));
        let listener = server.listen("127.0.0.1:0", Server::shared(Arc::clone(&service)));
        let listener = listener.expect("listening");
        let address = listener.local_addr().to_string().parse().expect("TCP");
        let clients = Runtime::builder().config(lab::config()).start().expect("started");
        Self {
            service,
            server,
            _listener: listener,
            address,
            relay: relay(script, address),
            clients,
        }
    }

    fn client(&self, change: impl FnOnce(Options) -> Options) -> Client {
        self.client_of(self.relay.tcp(), change)
    }

    fn client_of(&self, address: SocketAddr, change: impl FnOnce(Options) -> Options) -> Client {
        let options = options(address).reconnect_min(ms(1)).reconnect_max(ms(5));
        let options = change(options.session_timeout(LONG));
        Client::new(&self.clients.handle(), options).expect("good options")
    }

    /// Asserts that the client's outcomes agree with what the server has executed.
    fn check(&self, outcomes: &Outcomes) {
        let Outcomes { asked, answered, refused, not_sent, unknown, .. } = outcomes;
        let lengths = [answered, refused, not_sent, unknown].map(|tags| tags.len() as u64);
        eprintln!("{lengths:?} answered, refused, not sent, unknown of {asked}");
        assert_eq!(lengths.iter().sum::<u64>(), *asked, "one outcome each");
        assert_eq!(outcomes.wrong, 0, "answers of others");
        let executed = |tag: &u64| u64::from(self.service.executed(*tag));
        for tag in answered.iter().chain(refused) {
            assert_eq!(executed(tag), 1, "{tag} was answered");
        }
        for tag in not_sent {
            assert_eq!(executed(tag), 0, "{tag} was not sent");
        }
        assert!(unknown.iter().all(|tag| executed(tag) <= 1), "executed twice");
        self.settle();
        // The server has accepted exactly the requests that were answered, refused, or cut.
        let cut: u64 = unknown.iter().map(executed).sum();
        let accepted = self.server.stats().get(Counter::RequestsExecuted);
        assert_eq!(accepted, lengths[0] + lengths[1] + cut, "accepted, and lost without a word");
        assert_eq!(accepted, self.service.total());
    }

    /// Cuts all connections, and waits until the server has no session and no connection left.
    fn settle(&self) {
        self.relay.cut_all();
        eventually(LONG, || {
            let stats = self.server.stats();
            stats.sessions == 0 && stats.connections == 0
        });
        for runtime in [&self.server, &self.clients] {
            assert_eq!(runtime.stats().get(Counter::Panics), 0);
        }
    }
}

/// Sends `requests` requests in all, from several threads with sessions of their own.
fn ask(client: &Client, first_tag: u64, requests: u64, seed: u64) -> Outcomes {
    let (next, outcomes) = (AtomicU64::new(0), Mutex::<Outcomes>::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (next, outcomes) = (&next, &outcomes);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread);
                let mut session = fresh(client);
                loop {
                    if !session.is_alive() {
                        session = fresh(client);
                    }
                    let count = 1 + random.below(4);
                    let at = next.fetch_add(count, Ordering::Relaxed);
                    if at >= requests {
                        return;
                    }
                    let tags = first_tag + at..first_tag + (at + count).min(requests);
                    pipeline(&mut session, tags, &mut random, outcomes);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic")
}

/// Tries until it has a session.
fn fresh(client: &Client) -> Session {
    let mut session = None;
    eventually(LONG, || {
        session = client.session().ok();
        session.is_some()
    });
    session.expect("there is one")
}

fn pipeline(
    session: &mut Session,
    tags: std::ops::Range<u64>,
    random: &mut Random,
    outcomes: &Mutex<Outcomes>,
) {
    let sent: Vec<_> = tags
        .map(|tag| {
            let request = match random.below(10) {
                0 => format!("{tag} rows 300"),
                1 => format!("{tag} late {}", random.below(3)),
                2 => format!("{tag} fail"),
                _ => format!("{tag} echo"),
            };
            (tag, session.send(request))
        })
        .collect();
    for (tag, pending) in sent {
        let outcome = match pending.and_then(Pending::wait).and_then(|answer| read(answer, tag)) {
            Ok(true) => Outcome::Answered,
            Ok(false) => Outcome::Wrong,
            Err(error) => Outcome::Failed(error),
        };
        outcomes.lock().expect("no panic").note(tag, outcome);
    }
}

impl Outcomes {
    fn note(&mut self, tag: u64, outcome: Outcome) {
        self.asked += 1;
        match outcome {
            Outcome::Answered => self.answered.push(tag),
            Outcome::Wrong => {
                self.answered.push(tag);
                self.wrong += 1;
            }
            Outcome::Failed(error) => match error.fate() {
                Fate::NotSent => self.not_sent.push(tag),
                Fate::Unknown => self.unknown.push(tag),
                Fate::Refused => {
                    let text = error.server_error().map(|error| error.msg.clone());
                    self.wrong += u64::from(text != Some(tag.to_string().into_bytes()));
                    self.refused.push(tag);
                }
            },
        }
    }
}

/// Returns true if there are rows and all of them have the tag.
fn read(mut answer: Answer, tag: u64) -> Result<bool, Error> {
    let tag = tag.to_string();
    let (mut rows, mut right) = (0, true);
    while let Some(row) = answer.next_row()? {
        right &= matches!(row.get(0)?, Value::Bytes(text) if text == tag.as_bytes());
        rows += 1;
    }
    Ok(right && rows > 0)
}

/// Script with the same faults in both directions.
fn both_ways(faults: Faults) -> Script {
    Script { seed: seed(), share: 1.0, up: faults.clone(), down: faults }
}

#[track_caller]
fn all_is_answered(name: &str, faults: Faults, requests: u32) {
    let script = both_ways(faults);
    let seed = script.seed;
    eprintln!("EG_TEST_SEED={seed} {name}");
    let rig = Rig::start(script);
    let client = rig.client(|options| options);
    let outcomes = ask(&client, 0, often(requests).into(), seed);
    assert!(outcomes.not_sent.is_empty() && outcomes.unknown.is_empty(), "{name}: {outcomes:?}");
    client.close();
    rig.check(&outcomes);
}

#[test]
fn one_byte_at_a_time_all_is_answered() {
    all_is_answered("chop 1", Faults { chop: Some(1), ..Faults::default() }, 300);
}

#[test]
fn late_by_a_varying_time_all_is_answered() {
    let faults = Faults { delay: ms(2), jitter: ms(5), ..Faults::default() };
    all_is_answered("delay", faults, 200);
}

#[test]
fn in_lumps_all_is_answered() {
    let coalesce = Some(Coalesce { time: ms(5), bytes: 3000 });
    all_is_answered("coalesce", Faults { coalesce, ..Faults::default() }, 300);
}

#[test]
fn over_a_slow_line_all_is_answered() {
    let faults = Faults { rate: Some(100_000), chop: Some(500), ..Faults::default() };
    all_is_answered("rate", faults, 100);
}

#[test]
fn after_a_silence_all_is_answered() {
    for at in [Mark::Byte(1500), Mark::Time(ms(20))] {
        let stop = Some(Stop { at, pause: Some(ms(150)) });
        all_is_answered("pause", Faults { stop, ..Faults::default() }, 300);
    }
}

/// Ends connections in the middle, again and again. Asserts that each request has one outcome.
#[track_caller]
fn all_have_an_outcome(name: &str, script: Script, change: fn(Options) -> Options) -> Totals {
    let seed = script.seed;
    eprintln!("EG_TEST_SEED={seed} {name}");
    let rig = Rig::start(script);
    let client = rig.client(change);
    let outcomes = ask(&client, 0, often(2000).into(), seed);
    assert!(!outcomes.answered.is_empty(), "{name}: {outcomes:?}");
    client.close();
    rig.check(&outcomes);
    eventually(LONG, || rig.relay.live() == 0);
    rig.relay.totals()
}

#[test]
fn what_is_cut_off_has_an_outcome_on_which_both_sides_agree() {
    for how in [How::Close, How::Reset] {
        let cut = |byte| {
            let cut = Some(Cut { at: Mark::Byte(byte), how });
            Faults { cut, chop: Some(700), ..Faults::default() }
        };
        let clean = Faults::default;
        let up = Script { seed: seed(), share: 1.0, up: cut(3000), down: clean() };
        assert!(all_have_an_outcome("cut up", up, |options| options).cut > 1);
        let down = Script { seed: seed(), share: 1.0, up: clean(), down: cut(9000) };
        assert!(all_have_an_outcome("cut down", down, |options| options).cut > 1);
    }
    let cut = Some(Cut { at: Mark::Time(ms(15)), how: How::Reset });
    let faults = both_ways(Faults { cut, ..Faults::default() });
    assert!(all_have_an_outcome("cut at a time", faults, |options| options).cut > 1);
}

#[test]
fn what_is_swallowed_has_an_outcome_on_which_both_sides_agree() {
    let stop = |byte| {
        let stop = Some(Stop { at: Mark::Byte(byte), pause: None });
        Faults { stop, ..Faults::default() }
    };
    let clean = Faults::default;
    let probed = |options: Options| {
        options.probe_interval(ms(50)).probe_timeout(ms(300)).login_timeout(ms(500))
    };
    // Half of the connections stop. The other half shows that no request waits for the stopped
    // ones.
    let up = Script { seed: seed(), share: 0.5, up: stop(2000), down: clean() };
    all_have_an_outcome("stop up", up, probed);
    let down = Script { seed: seed(), share: 0.5, up: clean(), down: stop(5000) };
    all_have_an_outcome("stop down", down, probed);
}

/// Cuts the first conversation at each of its bytes.
#[test]
fn a_conversation_cut_at_any_byte_has_one_outcome() {
    let rig = Rig::start(Script::clean());
    let whole = conversation(&rig, 0).expect("an answer");
    assert!(whole, "it is right");
    eventually(LONG, || rig.relay.totals().connections == 1);
    let totals = rig.relay.totals();
    let mut outcomes = Outcomes { asked: 1, answered: vec![0], ..Outcomes::default() };
    let mut tag = 0;
    for (length, is_up) in [(totals.up.sent, true), (totals.down.sent, false)] {
        eprintln!("{length} bytes {}", if is_up { "up" } else { "down" });
        for byte in 0..=length {
            for how in [How::Close, How::Reset] {
                let cut = Some(Cut { at: Mark::Byte(byte), how });
                let (cut, clean) = (Faults { cut, ..Faults::default() }, Faults::default());
                let (up, down) = if is_up { (cut, clean) } else { (clean, cut) };
                rig.relay.follow(Script { seed: 0, share: 1.0, up, down });
                tag += 1;
                let outcome = match conversation(&rig, tag) {
                    Ok(true) => Outcome::Answered,
                    Ok(false) => Outcome::Wrong,
                    Err(error) => Outcome::Failed(error),
                };
                outcomes.note(tag, outcome);
            }
        }
    }
    rig.check(&outcomes);
    rig.relay.follow(Script::clean());
    assert!(conversation(&rig, tag + 1).expect("an answer"));
}

/// Asks once with a new client. Returns true if the answer is right.
fn conversation(rig: &Rig, tag: u64) -> Result<bool, Error> {
    let client = rig.client(|options| options.connections(1));
    let answer = client.session().and_then(|mut session| {
        let answer = session.execute(format!("{tag} echo"))?;
        read(answer, tag)
    });
    client.close();
    answer
}

#[test]
fn only_the_corrupted_connection_suffers() {
    for (up, down) in [(1e-3, 0.0), (0.0, 1e-3), (2e-2, 2e-2)] {
        let faults = |corrupt| Faults { corrupt, ..Faults::default() };
        let script = Script { seed: seed(), share: 1.0, up: faults(up), down: faults(down) };
        let seed = script.seed;
        eprintln!("EG_TEST_SEED={seed} corrupt {up} up, {down} down");
        let rig = Rig::start(script);
        let suffering = rig.client(|options| {
            let options = options.session_timeout(ms(500)).login_timeout(ms(200));
            options.request_timeout(ms(200)).probe_interval(ms(50)).probe_timeout(ms(100))
        });
        let healthy = rig.client_of(rig.address, |options| options);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let _done = Raise(&done);
            scope.spawn(|| suffer(&rig, &suffering, &done));
            let outcomes = ask(&healthy, APART, often(1500).into(), seed);
            let Outcomes { answered, refused, not_sent, unknown, wrong, asked } = &outcomes;
            assert_eq!((answered.len() + refused.len()) as u64, *asked);
            assert_eq!((not_sent.len(), unknown.len(), *wrong), (0, 0, 0));
            let tags = answered.iter().chain(refused);
            tags.for_each(|tag| assert_eq!(rig.service.executed(*tag), 1));
        });
        suffering.close();
        healthy.close();
        rig.settle();
        let totals = rig.relay.totals();
        assert!(totals.up.flipped + totals.down.flipped > 0, "nothing was corrupted");
    }
}

/// Sets a flag when it is dropped, also by a panic.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks over corrupted connections: answers may be wrong, but every call returns.
fn suffer(rig: &Rig, client: &Client, done: &AtomicBool) {
    let mut session: Option<Session> = None;
    for tag in 0.. {
        // At least one byte is flipped, however fast the other clients are.
        let totals = rig.relay.totals();
        if totals.up.flipped + totals.down.flipped > 0 && done.load(Ordering::Relaxed) {
            return;
        }
        match &mut session {
            Some(own) if own.is_alive() => {
                let _ = own.execute(format!("{tag} echo")).and_then(|answer| read(answer, tag));
            }
            _ => session = client.session().ok(),
        }
        // New connections have the same faults at other places.
        if tag % 20 == 19 {
            rig.relay.cut_all();
        }
    }
}
