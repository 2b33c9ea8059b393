//! Names that follow from the container's id: the same for every repetition of a request.

use crate::ipam::allocator::Holder;

/// Offset basis and prime of FNV-1a, 64 bits (draft-eastlake-fnv). Part of the names of
/// interfaces, so it must never change while pods run; std's hash may change with the compiler.
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// Hexadecimal digits behind `veth`: all that fits (`IFNAMSIZ`).
const HOST_VETH_DIGITS: usize = 11;

/// The host's end of the pod's veth pair: `veth` and 44 bits.
pub(super) fn host_veth(holder: &Holder) -> String {
    format!("veth{:0HOST_VETH_DIGITS$x}", hash(holder) >> 20)
}

/// Whether only [`host_veth`] makes such a name; other programs write fewer digits.
pub(super) fn is_host_veth(name: &str) -> bool {
    let digits = name.strip_prefix("veth").unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    digits.len() == HOST_VETH_DIGITS && digits.bytes().all(is_digit)
}

/// The bridge for the container, before it is known which ones are full.
pub(super) fn shard(holder: &Holder, bridges: usize) -> usize {
    let bridges_wide = u64::try_from(bridges).unwrap_or(u64::MAX).max(1);
    usize::try_from(hash(holder) % bridges_wide).unwrap_or(0)
}

fn hash(holder: &Holder) -> u64 {
    let bytes = holder
        .container_id
        .bytes()
        .chain([0])
        .chain(holder.ifname.bytes());
    bytes.fold(FNV_BASIS, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fixed_by_the_id_and_fit_an_interface() {
        let holder = |id: &str| Holder {
            container_id: id.into(),
            ifname: "eth0".into(),
        };
        assert_eq!(host_veth(&holder("a")), host_veth(&holder("a")));
        assert_ne!(host_veth(&holder("a")), host_veth(&holder("b")));
        assert_eq!(host_veth(&holder("a")).len(), 15);
        assert!(is_host_veth(&host_veth(&holder("a"))));
        assert!(!is_host_veth("veth0a1b2c3d") && !is_host_veth("eth0"));
        let used: std::collections::BTreeSet<_> = (0..64)
            .map(|id| shard(&holder(&id.to_string()), 4))
            .collect();
        assert_eq!(used, (0..4).collect());
    }
}
