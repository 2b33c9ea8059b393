//! Hardware addresses.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Mac {
    /// The address of a pod with these IP addresses: from its first one of IPv4, or else from its
    /// first one.
    ///
    /// Whoever gets the IP address next has the same hardware address too, so no neighbour entry
    /// on the node or in another pod is ever stale, and no announcement is needed.
    pub(crate) fn of_addresses(addresses: impl Iterator<Item = IpAddr>) -> Option<Self> {
        let mut addresses = addresses.peekable();
        let first = addresses.peek().copied();
        let address = addresses.find(IpAddr::is_ipv4).or(first)?;
        let [a, b, c, d] = match address {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(address) => folded(address),
        };
        Some(Self([0x0a, 0x58, a, b, c, d]))
    }

    /// A random one: locally administered, unicast.
    pub(crate) fn random() -> Self {
        // Each RandomState has keys of its own from the kernel's generator.
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&RandomState::new().hash_one(0_u8).to_ne_bytes()[..6]);
        bytes[0] = bytes[0] & 0xfe | 0x02;
        Self(bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// Four bytes for sixteen. The last four stay apart whatever the others are, so no two addresses
/// of one /96 share them; what two subnets of one bridge differ in is hashed (FNV-1a, 32 bits).
fn folded(address: Ipv6Addr) -> [u8; 4] {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let bytes = address.octets();
    let [.., a, b, c, d] = bytes;
    let hash = bytes[..12].iter().fold(BASIS, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(PRIME)
    });
    (hash ^ u32::from_be_bytes([a, b, c, d])).to_be_bytes()
}

impl FromStr for Mac {
    type Err = ();

    /// Six bytes with colons or hyphens between them. What no interface can have is refused:
    /// addresses of groups and the one of zeros.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(())?;
            *byte = u8::from_str_radix(part, 16).map_err(drop)?;
        }
        let usable = parts.next().is_none() && bytes[0] & 1 == 0 && bytes != [0; 6];
        usable.then_some(Self(bytes)).ok_or(())
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_addresses_have_the_same_hardware_address_and_ipv4_decides() {
        let mac = |texts: &[&str]| {
            let addresses = texts.iter().map(|text| text.parse().unwrap());
            Mac::of_addresses(addresses).map(|mac| mac.to_string())
        };
        assert_eq!(mac(&["10.88.0.2"]).as_deref(), Some("0a:58:0a:58:00:02"));
        assert_eq!(mac(&["fd00::2", "10.88.0.2"]), mac(&["10.88.0.2"]));
        let different = [
            "fd00::2",
            "fd00::3",
            "fd00::1:2",
            "fd00:0:0:1::2",
            "fd01::2",
        ];
        let macs: std::collections::BTreeSet<_> =
            different.iter().map(|text| mac(&[text])).collect();
        assert_eq!(macs.len(), different.len());
        assert_eq!(mac(&[]), None);
    }

    #[test]
    fn an_address_that_no_interface_can_have_is_none() {
        let mac = Mac([2, 0, 0, 0, 0xab, 9]);
        assert_eq!("02:00:00:00:AB:09".parse(), Ok(mac));
        assert_eq!(mac.to_string().parse(), Ok(mac));
        let group = "01:00:5e:00:00:01";
        let long = "02:00:00:00:00:09:00";
        for text in [
            "",
            "02:00:00:00:00",
            "00-00-00-00-00-00",
            group,
            long,
            "0x:00:00:00:00:09",
        ] {
            assert_eq!(text.parse::<Mac>(), Err(()), "{text}");
        }
    }
}
