//! The attackers, in a process of their own.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lab::abuse::{Course, Target};
use lab::helper::{announce, say};
use serde_json::json;

use crate::args::Attack;
use crate::node;

/// Attacks until standard input ends, and prints the tally.
pub(crate) fn attack(attack: &Attack) -> Result<(), Box<dyn Error>> {
    lab::load::raise_descriptor_limit()?;
    let target = Target { small: "one".into(), ..node::target(attack.address) };
    let stop = AtomicBool::new(false);
    let course = Course { peers: attack.peers, seed: attack.seed, stop: &stop };
    let tally = thread::scope(|scope| {
        let running = scope.spawn(|| attack.abuse.run(&target, &course));
        let told = announce("attacking");
        stop.store(true, Ordering::Relaxed);
        told.map(|()| running.join().map_err(|_| "an attacker panicked"))
    })??;
    let tally = json!({
        "connected": tally.connected, "refused": tally.refused,
        "closed_by_server": tally.closed_by_server, "kept": tally.kept,
        "sent_bytes": tally.sent_bytes, "received_bytes": tally.received_bytes,
        "requests": tally.requests, "answered": tally.answered, "failed": tally.failed,
        "cut": tally.cut, "even": tally.is_even(),
    });
    Ok(say(&tally.to_string())?)
}
