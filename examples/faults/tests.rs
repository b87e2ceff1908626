//! Plans, played on a clock of their own; relays, over both kinds of socket.

mod plans;
mod relays;
