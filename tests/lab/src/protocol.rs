//! Protocols for tests.

use std::sync::{Arc, Mutex};

use epoll_group::codec::frame::Dialect;
use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol};

use super::{LONG, eventually};

/// Why the first thousand connections ended, in the order in which they did.
#[derive(Clone, Debug, Default)]
pub struct Ends(Arc<Mutex<Vec<String>>>);

impl Ends {
    fn push(&self, reason: &CloseReason) {
        let mut all = self.0.lock().expect("nobody panics here");
        // Bounded, so that a test that measures memory does not measure this.
        if all.len() < 1000 {
            all.push(reason.to_string());
        }
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().expect("nobody panics here").clone()
    }

    /// The reasons, when there are `count` of them.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<String> {
        eventually(LONG, || self.all().len() >= count);
        self.all()
    }
}

/// Echoes whole frames of [`Dialect::Legacy`].
#[derive(Clone, Debug, Default)]
pub struct Frames {
    pub ends: Ends,
    /// Largest length accepted, 64 MiB when 0.
    pub limit: u32,
}

impl Protocol for Frames {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        let limit = if self.limit == 0 { 64 << 20 } else { self.limit };
        while let Some(header) =
            Dialect::Legacy.parse(input.bytes(), limit).map_err(Close::error)?
        {
            let frame_bytes = Dialect::Legacy.frame_bytes(&header);
            if input.len() < frame_bytes {
                input.need(frame_bytes);
                break;
            }
            conn.send(input.take(frame_bytes));
        }
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.ends.push(reason);
    }
}

/// Calls a closure for the bytes that have arrived.
pub struct Bytes<F> {
    received: F,
    pub ends: Ends,
}

impl<F> Bytes<F>
where
    F: Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync + 'static,
{
    pub fn new(received: F) -> Self {
        Self { received, ends: Ends::default() }
    }

    /// With a second handle to the reasons.
    pub fn with_ends(received: F) -> (Self, Ends) {
        let protocol = Self::new(received);
        let ends = protocol.ends.clone();
        (protocol, ends)
    }
}

impl<F> Protocol for Bytes<F>
where
    F: Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync + 'static,
{
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        (self.received)(conn, input)
    }

    fn closed(&self, _: &Connection, (): (), reason: &CloseReason) {
        self.ends.push(reason);
    }
}

/// Sends back its input.
pub fn echo(conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    conn.send(input.take_all());
    Ok(())
}
