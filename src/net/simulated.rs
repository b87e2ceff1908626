//! [`Served`]: a protocol on sockets that are connected already, for simulations.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Protocol;
use super::accept::admit;
use super::address::Address;
use super::connection::Connection;
use super::handler::{Erased, Typed};
#[cfg(test)]
use super::{Close, Input};
use crate::runtime::{Class, Group};

/// A protocol with as many connections as it is given, as if a listener had accepted them.
pub(crate) struct Served(Arc<dyn Erased>);

impl Served {
    pub(crate) fn new(protocol: impl Protocol) -> Self {
        Self(Arc::new(Typed::new(protocol)))
    }

    /// Serves a socket, which does not block, or closes it if there are too many.
    pub(crate) fn accept(
        &self,
        group: &Arc<Group>,
        socket: OwnedFd,
        peer: Address,
    ) -> Option<Connection> {
        admit(group, socket, peer, &self.0, Class::Ordinary)
    }
}

/// A protocol that reads no input.
#[cfg(test)]
pub(crate) struct Deaf;

#[cfg(test)]
impl Protocol for Deaf {
    type State = ();

    fn opened(&self, _: &Connection) {}

    fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::super::{Close, Input};
    use super::*;
    use crate::config::Config;
    use crate::runtime::Simulated;
    use crate::stats::Counter;
    use crate::sys::clock;

    const TIMEOUT: Duration = Duration::from_secs(10);
    /// By which every deadline is looked at late: so much else is queued.
    const LATE: Duration = Duration::from_millis(150);
    const FRAME: &[u8] = b"a frame.";
    const MORE_THAN_A_SOCKET_TAKES: usize = 4 << 20;

    /// Answers each frame with so many bytes.
    struct Answers(usize);

    impl Protocol for Answers {
        type State = ();

        fn opened(&self, _: &Connection) {}

        fn received(
            &self,
            conn: &Connection,
            (): &mut (),
            input: &mut Input<'_>,
        ) -> Result<(), Close> {
            if input.len() >= FRAME.len() {
                input.take(FRAME.len());
                conn.send(vec![0; self.0]);
            }
            Ok(())
        }
    }

    /// A server that looks at every time too late, and a peer of it.
    struct World {
        runtime: Simulated,
        peer: UnixStream,
        now: Instant,
    }

    impl World {
        fn new(answers: usize, idle: Duration) -> Self {
            let now = Instant::now();
            clock::simulate(Some(now));
            let config = Config::default().net_write_timeout(TIMEOUT).frame_timeout(TIMEOUT);
            let config = config.idle_timeout(idle);
            let runtime = Simulated::new(config).expect("descriptors");
            let (ours, peer) = UnixStream::pair().expect("descriptors");
            ours.set_nonblocking(true).expect("a socket");
            let served = Served::new(Answers(answers));
            let peer_addr = Address::Unix("".into());
            served.accept(runtime.group(), ours.into(), peer_addr).expect("there is room");
            Self { runtime, peer, now }
        }

        fn sends(&mut self, bytes: &[u8]) {
            self.peer.write_all(bytes).expect("there is room");
            self.run();
        }

        /// Everything that can be done is.
        fn run(&self) {
            loop {
                self.runtime.take_events();
                while self.runtime.take_task(false) {}
                if self.runtime.in_hands() == 0 {
                    return;
                }
                self.runtime.run(0, Some((0, 1)));
            }
        }

        /// The next time to look comes, and passes.
        fn looks(&mut self) {
            self.now = self.runtime.next_deadline().expect("there is one") + LATE;
            clock::simulate(Some(self.now));
            self.runtime.fire_due();
            self.run();
        }

        fn count(&self, counter: Counter) -> u64 {
            self.runtime.handle().stats().get(counter)
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            clock::simulate(None);
        }
    }

    #[test]
    fn who_never_reads_is_cut_though_all_his_deadlines_are_looked_at_late() {
        // A peer that has not taken its reply is not idle.
        let mut world = World::new(MORE_THAN_A_SOCKET_TAKES, TIMEOUT / 4);
        world.sends(FRAME);
        let began = world.now;
        world.looks();
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 0, "that may be our fault");
        while world.now < began + 3 * TIMEOUT && world.count(Counter::ConnectionsClosed) == 0 {
            let closing = world.runtime.handle().stats().closing_connections;
            assert_eq!(closing, 0, "it is not idle");
            world.looks();
        }
        assert_eq!(world.count(Counter::ClosedWriteTimeout), 1);
        assert!(world.now <= began + 2 * (TIMEOUT + LATE));
    }

    #[test]
    fn who_never_completes_a_frame_is_cut_though_all_his_deadlines_are_looked_at_late() {
        let mut world = World::new(0, Duration::ZERO);
        world.sends(&FRAME[..3]);
        world.looks();
        // One more for the next frame.
        world.sends(&FRAME[3..]);
        world.sends(&FRAME[..3]);
        let began = world.now;
        world.looks();
        assert_eq!(world.count(Counter::ClosedFrameTimeout), 0, "that may be our fault");
        while world.now < began + 3 * TIMEOUT && world.count(Counter::ConnectionsClosed) == 0 {
            world.looks();
        }
        assert_eq!(world.count(Counter::ClosedFrameTimeout), 1);
    }
}
