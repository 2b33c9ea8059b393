//! A range of addresses inside a subnet, with host-local's defaults.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// Longest prefix of a usable subnet: a gateway and a pod need two addresses besides the
/// network's and the broadcast address.
const PREFIX_MAX: u8 = 30;
/// Shortest prefix, which bounds the bitmap to 2 MiB.
const PREFIX_MIN: u8 = 8;

/// Addresses `start` to `end`, inclusive, of one subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet.
    pub subnet: Ipv4Net,
    /// First address for pods.
    pub start: Ipv4Addr,
    /// Last address for pods.
    pub end: Ipv4Addr,
    /// The subnet's gateway; never handed out.
    pub gateway: Ipv4Addr,
}

/// Why a range is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The subnet has no room, or too much.
    #[error("subnet {0} must have a prefix length of 8 to 30")]
    Prefix(Ipv4Net),
    /// The subnet's address is not its first.
    #[error("subnet {0} has host bits set: it should be {1}")]
    HostBits(Ipv4Net, Ipv4Net),
    /// An address is outside of the subnet.
    #[error("{0} is not an address for hosts of {1}")]
    Outside(Ipv4Addr, Ipv4Net),
    /// The range ends before it starts.
    #[error("the range ends at {1}, before it starts at {0}")]
    Backwards(Ipv4Addr, Ipv4Addr),
}

impl Range {
    /// Checks a range; what is not given is the first, the last and the gateway address of the
    /// subnet: `.1` is the gateway, pods have the rest.
    pub fn new(
        subnet: Ipv4Net,
        start: Option<Ipv4Addr>,
        end: Option<Ipv4Addr>,
        gateway: Option<Ipv4Addr>,
    ) -> Result<Self, RangeError> {
        if !(PREFIX_MIN..=PREFIX_MAX).contains(&subnet.prefix_len()) {
            return Err(RangeError::Prefix(subnet));
        }
        if subnet != subnet.trunc() {
            return Err(RangeError::HostBits(subnet, subnet.trunc()));
        }
        let first = Ipv4Addr::from(u32::from(subnet.network()) + 1);
        let last = Ipv4Addr::from(u32::from(subnet.broadcast()) - 1);
        let range = Self {
            subnet,
            start: start.unwrap_or(first),
            end: end.unwrap_or(last),
            gateway: gateway.unwrap_or(first),
        };
        for address in [range.start, range.end, range.gateway] {
            if !(first..=last).contains(&address) {
                return Err(RangeError::Outside(address, subnet));
            }
        }
        if range.start > range.end {
            return Err(RangeError::Backwards(range.start, range.end));
        }
        Ok(range)
    }

    /// How many addresses there are, the gateway included.
    pub fn len(&self) -> u32 {
        u32::from(self.end) - u32::from(self.start) + 1
    }

    /// A range always has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (self.start..=self.end).contains(&address)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn defaults_are_those_of_host_local() {
        let range = Range::new(net("10.1.2.0/24"), None, None, None).unwrap();
        assert_eq!(range.gateway, Ipv4Addr::new(10, 1, 2, 1));
        assert_eq!(range.to_string(), "10.1.2.1-10.1.2.254");
        assert_eq!(range.len(), 254);
    }

    #[test]
    fn impossible_ranges_are_refused_by_name() {
        let ip = |text: &str| Some(text.parse().unwrap());
        let subnet = net("10.1.2.0/24");
        let prefix = Range::new(net("10.1.2.0/31"), None, None, None);
        assert_eq!(prefix, Err(RangeError::Prefix(net("10.1.2.0/31"))));
        let bits = Range::new(net("10.1.2.3/24"), None, None, None);
        assert_eq!(bits, Err(RangeError::HostBits(net("10.1.2.3/24"), subnet)));
        for outside in ["10.1.3.1", "10.1.2.0", "10.1.2.255"] {
            assert!(
                Range::new(subnet, ip(outside), None, None).is_err(),
                "{outside}"
            );
        }
        assert!(Range::new(subnet, ip("10.1.2.9"), ip("10.1.2.8"), None).is_err());
    }
}
