//! [`Admissions`]: the connections of one listener, counted and limited.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Mutex;

use super::Address;
use super::options::ListenOptions;
use crate::sync::shim::lock;

/// Address for which connections and failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum PeerHost {
    V4(Ipv4Addr),
    /// The first 64 bits. A peer with one address of such a network has all of them.
    V6([u8; 8]),
    /// All Unix sockets.
    Local,
}

impl From<IpAddr> for PeerHost {
    fn from(addr: IpAddr) -> Self {
        match addr.to_canonical() {
            IpAddr::V4(addr) => Self::V4(addr),
            IpAddr::V6(addr) => {
                let [a, b, c, d, e, f, g, h, ..] = addr.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl From<&Address> for PeerHost {
    fn from(addr: &Address) -> Self {
        match addr {
            Address::Tcp(addr) => addr.ip().into(),
            Address::Unix(_) => Self::Local,
        }
    }
}

/// Connections of one listener since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerStats {
    /// Connections that are open now.
    pub open: usize,
    /// Connections that were accepted within the limits.
    pub accepted: u64,
    /// Connections closed at once because of the listener's `max_connections`.
    pub refused_max_connections: u64,
    /// Connections closed at once because of its `max_connections_per_address`.
    pub refused_max_connections_per_address: u64,
}

/// Counts and limits of one listener.
///
/// *Shape*: a lock around four numbers, and an entry for each address with open connections if they
/// are limited by address. The lock is taken when a connection begins, when a layer names its
/// client, and when it ends.
#[derive(Debug)]
pub(super) struct Admissions {
    max_connections: usize,
    max_per_address: Option<usize>,
    /// Set if the peers are proxies, which have no limit by address. Their clients have.
    by_client: bool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    stats: ListenerStats,
    by_address: HashMap<PeerHost, usize>,
}

impl Admissions {
    pub(super) fn new(options: &ListenOptions) -> Self {
        Self {
            max_connections: options.max_connections.unwrap_or(usize::MAX),
            max_per_address: options.max_connections_per_address,
            by_client: options.by_client,
            counts: Mutex::default(),
        }
    }

    pub(super) fn stats(&self) -> ListenerStats {
        lock(&self.counts).stats
    }

    /// Counts a new connection.
    ///
    /// # Errors
    ///
    /// The limit that refuses it.
    pub(super) fn admit(&self, peer: &Address) -> Result<(), usize> {
        let mut counts = lock(&self.counts);
        let Counts { stats, by_address } = &mut *counts;
        if stats.open >= self.max_connections {
            stats.refused_max_connections += 1;
            return Err(self.max_connections);
        }
        if let Some(most) = self.max_per_address
            && !self.by_client
        {
            let host = peer.into();
            let open = by_address.get(&host).copied().unwrap_or(0);
            if open >= most {
                stats.refused_max_connections_per_address += 1;
                return Err(most);
            }
            by_address.insert(host, open + 1);
        }
        stats.open += 1;
        stats.accepted += 1;
        Ok(())
    }

    /// Counts an admitted connection under another address, which a layer has named.
    ///
    /// # Errors
    ///
    /// The limit that the other address has reached.
    pub(super) fn rename(&self, from: &Address, to: &Address) -> Result<(), usize> {
        let Some(most) = self.max_per_address else { return Ok(()) };
        let (from, to) = (PeerHost::from(from), to.into());
        let Counts { stats, by_address } = &mut *lock(&self.counts);
        if !self.by_client {
            release(by_address, from);
        }
        let open = by_address.entry(to).or_insert(0);
        *open += 1;
        if *open <= most {
            return Ok(());
        }
        stats.refused_max_connections_per_address += 1;
        Err(most)
    }

    /// Counts the end of a connection that was admitted, with the address that a layer has named.
    pub(super) fn leave(&self, peer: &Address, client: Option<&Address>) {
        let mut counts = lock(&self.counts);
        counts.stats.open -= 1;
        let counted = client.or_else(|| (!self.by_client).then_some(peer));
        if self.max_per_address.is_some()
            && let Some(counted) = counted
        {
            release(&mut counts.by_address, counted.into());
        }
    }
}

fn release(by_address: &mut HashMap<PeerHost, usize>, host: PeerHost) {
    if let Entry::Occupied(mut open) = by_address.entry(host) {
        *open.get_mut() -= 1;
        if *open.get() == 0 {
            open.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Address {
        Address::Tcp(text.parse().expect("an address"))
    }

    #[test]
    fn networks_of_ipv6_and_unix_sockets_are_one_address_each() {
        let host = |text: &str| PeerHost::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(host("2001:db8::1"), host("2001:db8::ffff:1:2:3"));
        assert_ne!(host("2001:db8::1"), host("2001:db8:0:1::1"));
        assert_eq!(host("::ffff:10.0.0.1"), host("10.0.0.1"));
        assert_ne!(host("10.0.0.1"), host("10.0.0.2"));
        let [a, b] = ["", "/run/a"].map(|path| PeerHost::from(&Address::Unix(path.into())));
        assert_eq!((a, b), (PeerHost::Local, PeerHost::Local));
        assert_eq!(PeerHost::from(&from("10.0.0.1:1")), PeerHost::from(&from("10.0.0.1:2")));
    }

    #[test]
    fn a_limit_by_address_counts_networks_of_ipv6_until_their_connections_end() {
        let options = ListenOptions::new().max_connections(3).max_connections_per_address(1);
        let admissions = Admissions::new(&options);
        let [one, same, other] = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8:0:1::1]:1"];
        assert!(admissions.admit(&from(one)).is_ok());
        assert!(admissions.admit(&from(same)).is_err());
        assert!(admissions.admit(&from(other)).is_ok());
        assert!(admissions.admit(&from("10.0.0.1:1")).is_ok());
        assert!(admissions.admit(&from("10.0.0.2:1")).is_err(), "the fourth of all");
        admissions.leave(&from(one), None);
        assert!(admissions.admit(&from(same)).is_ok());
        let stats = admissions.stats();
        assert_eq!((stats.open, stats.accepted), (3, 4));
        assert_eq!(stats.refused_max_connections, 1);
        assert_eq!(stats.refused_max_connections_per_address, 1);
        for peer in [same, other, "10.0.0.1:2"] {
            admissions.leave(&from(peer), None);
        }
        assert!(lock(&admissions.counts).by_address.is_empty());
    }

    #[test]
    fn a_limit_of_zero_refuses_all() {
        let none = Admissions::new(&ListenOptions::new().max_connections_per_address(0));
        assert!(none.admit(&from("10.0.0.1:1")).is_err());
        let none = Admissions::new(&ListenOptions::new().max_connections(0));
        assert!(none.admit(&from("10.0.0.1:1")).is_err());
    }
}
