//! The attackers, in a process of their own.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::helper::say;
use crate::node::{PASSWORD, USER};
use crate::options::Attack;
use lab::abuse::{Course, Target};

/// Goes on until its input ends, and says what became of it.
pub(crate) fn attack(attack: &Attack) -> Result<(), Box<dyn Error>> {
    lab::load::sys::raise_descriptor_limit()?;
    let target = Target {
        address: attack.address,
        logins: true,
        user: USER.into(),
        password: PASSWORD.into(),
        small: "one".into(),
        large: "source 100000 1000".into(),
    };
    let stop = AtomicBool::new(false);
    let course = Course { peers: attack.peers, seed: attack.seed, stop: &stop };
    let tally = thread::scope(|scope| {
        let running = scope.spawn(|| attack.abuse.run(&target, &course));
        let told = say("attacking");
        // Also ends when the bench is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
        told.map(|()| running.join().map_err(|_| "an attacker panicked"))
    })??;
    let even = tally.is_even();
    say(&serde_json::to_string(&serde_json::json!({
        "connected": tally.connected, "refused": tally.refused,
        "closed_by_server": tally.closed_by_server, "kept": tally.kept,
        "sent_bytes": tally.sent_bytes, "received_bytes": tally.received_bytes,
        "requests": tally.requests, "answered": tally.answered, "failed": tally.failed,
        "cut": tally.cut, "even": even,
    }))?)?;
    Ok(())
}
