//! [`Network`]: a prefix of IP addresses.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Network of IP addresses with a common prefix: `"10.0.0.0/8"`, `"::1"`.
///
/// IPv4 peers of an IPv6 listener have mapped addresses (`::ffff:10.0.0.1`), which count as the IPv4
/// address inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// Returns true if the address is in the network.
    pub(super) fn contains(&self, addr: IpAddr) -> bool {
        let other = match (self.first, addr.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(addr)) => {
                u128::from(first.to_bits() ^ addr.to_bits()) << 96
            }
            (IpAddr::V6(first), IpAddr::V6(addr)) => first.to_bits() ^ addr.to_bits(),
            _ => return false,
        };
        other.leading_zeros() >= self.prefix_bits.into()
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = |problem| NetworkError { text: text.to_owned(), problem };
        let (addr, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let addr: IpAddr = addr.parse().map_err(|_| error(Problem::Address))?;
        let most = if addr.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => match bits.parse() {
                Ok(bits) if bits <= most => bits,
                _ => return Err(error(Problem::Bits { most })),
            },
        };
        let (first, bits) = match addr.to_canonical() {
            v4 @ IpAddr::V4(_) if addr.is_ipv6() && bits >= 96 => (v4, bits - 96),
            _ => (addr, bits),
        };
        let low_bits = match first {
            IpAddr::V4(first) => u128::from(first.to_bits()) << 96,
            IpAddr::V6(first) => first.to_bits(),
        };
        if low_bits.checked_shl(bits.into()).unwrap_or(0) != 0 {
            return Err(error(Problem::LowBits));
        }
        Ok(Self { first, prefix_bits: bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix_bits)
    }
}

/// Reason why a text is no [`Network`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkError {
    text: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Address,
    Bits { most: u8 },
    LowBits,
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "network {:?}: ", self.text)?;
        match self.problem {
            Problem::Address => f.write_str("no IP address, with or without /BITS"),
            Problem::Bits { most } => write!(f, "the prefix must have 0 to {most} bits"),
            Problem::LowBits => f.write_str("the address has bits behind the prefix"),
        }
    }
}

impl std::error::Error for NetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().expect("a network")
    }

    #[test]
    fn addresses_with_the_prefix_are_inside_and_others_are_not() {
        for (of, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.1.2.3", "::a01:203"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.0.0.0"),
            ("192.168.3.7", "192.168.3.7", "192.168.3.6"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::1", "::1", "::2"),
            ("fd00::/8", "fdff::1", "fe00::"),
            ("::/0", "ffff::", "127.0.0.1"),
        ] {
            let of = network(of);
            assert!(of.contains(inside.parse().expect("an address")), "{of} {inside}");
            assert!(!of.contains(outside.parse().expect("an address")), "{of} {outside}");
            assert_eq!(network(&of.to_string()), of);
        }
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_text() {
        for (text, problem) in [
            ("", "no IP address, with or without /BITS"),
            ("10.0.0/8", "no IP address, with or without /BITS"),
            ("localhost", "no IP address, with or without /BITS"),
            ("10.0.0.0/33", "the prefix must have 0 to 32 bits"),
            ("10.0.0.0/", "the prefix must have 0 to 32 bits"),
            ("::/-1", "the prefix must have 0 to 128 bits"),
            ("10.0.0.1/8", "the address has bits behind the prefix"),
            ("::1/0", "the address has bits behind the prefix"),
        ] {
            let error = text.parse::<Network>().expect_err(text);
            assert_eq!(error.to_string(), format!("network {text:?}: {problem}"));
        }
    }
}
