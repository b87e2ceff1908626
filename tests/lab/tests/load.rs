//! The load of frames, before servers that answer right, wrong, and not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::load::{Heavy, Load, Options, Pace};
use lab::protocol::{Bytes, Frames as Echo, echo};
use lab::{BOTH, Kind, LONG, Server, config};

const WINDOW: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_micros(500);

fn options(server: &Server) -> Options {
    let target = server.address().to_string().parse().expect("an address");
    Options { connections: 5, quiesce: LONG, ..Options::new(target) }
}

#[test]
fn every_question_of_every_shape_has_its_answer() {
    for kind in BOTH {
        let server = Server::start(kind, config(), Echo::default());
        let patient = options(&server);
        let heavy = Heavy { connections: 2, burn: Duration::ZERO, pipeline: 3 };
        for options in [
            Options { sessions_per_connection: 3, pipeline: 4, ..patient.clone() },
            Options { frame_bytes: 200_000, heavy: Some(heavy), ..patient.clone() },
            Options { pace: Pace::After(PAUSE), frame_bytes: 13, ..patient.clone() },
            Options { pace: Pace::Random(PAUSE), burn: PAUSE / 500, ..patient.clone() },
            Options { pace: Pace::Bursts { size: 2, every: PAUSE }, ..patient.clone() },
        ] {
            let mut load = Load::connect(&options).unwrap();
            let mut answers = load.answers_total();
            assert_eq!(answers, 5 + 2 * u64::from(options.heavy.is_some()));
            let (until, mut windows) = (Instant::now() + LONG, 0);
            while windows < 2 {
                let report = load.run_for(WINDOW, |_| ()).unwrap().checked().unwrap();
                assert!(report.is_complete(), "{report:?}");
                assert!(report.heavy_requests == 0 || options.heavy.is_some());
                assert_eq!(report.hist.len(), report.requests);
                answers += report.asked;
                assert_eq!(load.answers_total(), answers);
                // On a busy machine a window may be over before the load has asked.
                let has_asked =
                    report.asked > 0 && (report.heavy_requests > 0) == options.heavy.is_some();
                windows += u32::from(has_asked);
                assert!(has_asked || Instant::now() < until, "{report:?}");
            }
        }
    }
}

#[test]
fn a_server_that_changes_a_byte_is_found_out() {
    let changed = Bytes::new(|conn, input| {
        let mut bytes = input.take_all().to_vec();
        *bytes.last_mut().expect("something came") ^= 1;
        conn.send(bytes);
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config(), changed);
    let error = Load::connect(&options(&server)).unwrap_err().to_string();
    assert!(error.contains("byte 63 of the answer to request 0"), "{error}");
}

#[test]
fn a_silent_server_fails_what_it_was_asked() {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = Arc::clone(&silent);
    let answers = move |conn: &_, input: &mut epoll_group::net::Input<'_>| {
        if !is_silent.load(Ordering::Relaxed) {
            return echo(conn, input);
        }
        input.take_all();
        Ok(())
    };
    let server = Server::start(Kind::Tcp, config(), Bytes::new(answers));
    // Long enough for the answers while the connections open.
    let options = Options { quiesce: Duration::from_secs(2), ..options(&server) };
    let mut load = Load::connect(&options).unwrap();
    silent.store(true, Ordering::Relaxed);
    let report = load.run_for(2 * WINDOW, |_| ()).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!((report.silent, report.errors, report.failed), (5, 5, 5), "{report:?}");
    assert!(report.checked().unwrap_err().to_string().contains("1 requests unanswered"));
}
