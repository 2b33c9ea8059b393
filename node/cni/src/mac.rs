//! Hardware addresses.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::Ipv4Addr;

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl Mac {
    /// The address of a pod with this IP address.
    ///
    /// Whoever gets the IP address next has the same hardware address too, so no neighbour entry
    /// on the node or in another pod is ever stale, and no announcement is needed.
    pub(crate) fn of_address(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        Self([0x0a, 0x58, a, b, c, d])
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

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02x}")?;
        }
        Ok(())
    }
}
