//! A range of addresses inside a subnet of either family, with host-local's defaults.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Fewest bits for hosts in a usable subnet: a gateway and a pod need two addresses besides the
/// network's own and, in IPv4, the broadcast address (host-local's `Range.Canonicalize`).
const HOST_BITS_MIN: u8 = 2;

/// Addresses `start` to `end`, inclusive, of one subnet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The subnet.
    pub subnet: IpNet,
    /// First address for pods.
    pub start: IpAddr,
    /// Last address for pods.
    pub end: IpAddr,
    /// The subnet's gateway; never handed out.
    pub gateway: IpAddr,
}

/// Why a range is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The subnet has no room.
    #[error("subnet {0} is too small: it needs room for a gateway and a pod")]
    Prefix(IpNet),
    /// The subnet's address is not its first.
    #[error("subnet {0} has host bits set: it should be {1}")]
    HostBits(IpNet, IpNet),
    /// An address is outside of the subnet.
    #[error("{0} is not an address for hosts of {1}")]
    Outside(IpAddr, IpNet),
    /// The range ends before it starts.
    #[error("the range ends at {1}, before it starts at {0}")]
    Backwards(IpAddr, IpAddr),
}

impl Range {
    /// Checks a range; what is not given is the first, the last and the gateway address of the
    /// subnet: `.1` or `::1` is the gateway, pods have the rest.
    pub fn new(
        subnet: IpNet,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Self, RangeError> {
        if subnet.max_prefix_len() - subnet.prefix_len() < HOST_BITS_MIN {
            return Err(RangeError::Prefix(subnet));
        }
        if subnet != subnet.trunc() {
            return Err(RangeError::HostBits(subnet, subnet.trunc()));
        }
        let (first, last) = hosts(subnet);
        let range = Self {
            subnet,
            start: start.unwrap_or(first),
            end: end.unwrap_or(last),
            gateway: gateway.unwrap_or(first),
        };
        for address in [range.start, range.end, range.gateway] {
            // An address of the other family is outside too: each IPv4 address sorts before each
            // IPv6 address.
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
    pub fn len(&self) -> u128 {
        number(self.end) - number(self.start) + 1
    }

    /// A range always has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        (self.start..=self.end).contains(&address)
    }

    /// How far an address of the range is from its start.
    pub(super) fn offset(&self, address: IpAddr) -> Option<u128> {
        self.contains(address)
            .then(|| number(address) - number(self.start))
    }

    /// The address that far from the start.
    pub(super) fn at(&self, offset: u128) -> Option<IpAddr> {
        let address = number(self.start).checked_add(offset)?;
        address_like(self.start, address).filter(|address| self.contains(*address))
    }
}

/// The first and the last address for hosts. IPv6 has no broadcast address.
fn hosts(subnet: IpNet) -> (IpAddr, IpAddr) {
    match subnet {
        IpNet::V4(net) => {
            let first = u32::from(net.network()) + 1;
            let last = u32::from(net.broadcast()) - 1;
            (
                Ipv4Addr::from_bits(first).into(),
                Ipv4Addr::from_bits(last).into(),
            )
        }
        IpNet::V6(net) => {
            let first = net.network().to_bits() + 1;
            (Ipv6Addr::from_bits(first).into(), net.broadcast().into())
        }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address with a number, of the family of `like`.
fn address_like(like: IpAddr, number: u128) -> Option<IpAddr> {
    match like {
        IpAddr::V4(_) => {
            let bits = u32::try_from(number).ok()?;
            Some(Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(_) => Some(Ipv6Addr::from_bits(number).into()),
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

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn defaults_are_those_of_host_local() {
        let range = Range::new(net("10.1.2.0/24"), None, None, None).unwrap();
        assert_eq!(range.gateway, ip("10.1.2.1"));
        assert_eq!(range.to_string(), "10.1.2.1-10.1.2.254");
        assert_eq!(range.len(), 254);
        // No address is lost to broadcast in IPv6.
        let range = Range::new(net("fd00:1::/120"), None, None, None).unwrap();
        assert_eq!(range.gateway, ip("fd00:1::1"));
        assert_eq!(range.to_string(), "fd00:1::1-fd00:1::ff");
        assert_eq!(range.len(), 255);
    }

    #[test]
    fn a_subnet_may_be_as_large_as_its_family() {
        let largest = |text: &str| Range::new(net(text), None, None, None).unwrap().len();
        assert_eq!(largest("0.0.0.0/0"), (1 << 32) - 2);
        assert_eq!(largest("::/0"), u128::MAX);
        assert_eq!(largest("fd00::/64"), (1 << 64) - 1);
        assert_eq!(largest("fd00::/126"), 3);
    }

    #[test]
    fn impossible_ranges_are_refused_by_name() {
        for small in ["10.1.2.0/31", "10.1.2.0/32", "fd00::/127", "fd00::/128"] {
            let refused = Range::new(net(small), None, None, None);
            assert_eq!(refused, Err(RangeError::Prefix(net(small))));
        }
        for (wrong, right) in [("10.1.2.3/24", "10.1.2.0/24"), ("fd00::3/64", "fd00::/64")] {
            let refused = Range::new(net(wrong), None, None, None);
            assert_eq!(refused, Err(RangeError::HostBits(net(wrong), net(right))));
        }
        let outside = [
            ("10.1.2.0/24", "10.1.3.1"),
            ("10.1.2.0/24", "10.1.2.0"),
            ("10.1.2.0/24", "10.1.2.255"),
            ("10.1.2.0/24", "fd00::1"),
            ("fd00::/64", "fd00::"),
            ("fd00::/64", "fd00:0:0:1::"),
            ("fd00::/64", "10.1.2.1"),
        ];
        for (subnet, outside) in outside {
            for place in 0..3 {
                let at = |index| (index == place).then(|| outside.parse().unwrap());
                let refused = Range::new(net(subnet), at(0), at(1), at(2));
                let wanted = RangeError::Outside(outside.parse().unwrap(), net(subnet));
                assert_eq!(refused, Err(wanted));
            }
        }
        let subnet = net("10.1.2.0/24");
        assert!(Range::new(subnet, Some(ip("10.1.2.9")), Some(ip("10.1.2.8")), None).is_err());
        let (late, early) = (Some(ip("fd00::9")), Some(ip("fd00::8")));
        assert!(Range::new(net("fd00::/64"), late, early, None).is_err());
    }
}
