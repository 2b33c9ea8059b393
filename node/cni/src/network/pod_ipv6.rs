//! IPv6 in the pod: what its interface must be set to before it is brought up.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::NetworkError;
use crate::sysctl;

/// Settings of IPv6, one folder per interface (Documentation/networking/ip-sysctl.rst).
const CONF: &str = "/proc/sys/net/ipv6/conf";

/// Switches IPv6 on for `lo` and the pod's interface. Runs inside the pod's namespace.
///
/// # Errors
/// [`NetworkError::File`] if the kernel has no IPv6.
pub(super) fn switch_on(ifname: &str) -> Result<(), NetworkError> {
    let settings = [
        // A runtime, or the machine's default for new interfaces, may have switched it off
        // (`ConfigureIface` of the reference's pkg/ipam).
        ("lo", "disable_ipv6", "0"),
        (ifname, "disable_ipv6", "0"),
        // A port in hairpin mode hears its own probe for duplicates and takes it for another's.
        (ifname, "accept_dad", "0"),
    ];
    for (interface, key, value) in settings {
        sysctl::set(&Path::new(CONF).join(interface).join(key), value)?;
    }
    Ok(())
}

/// Lets the pod's interface take no address and no route from others: any pod on the bridge could
/// say that it is the router, and a pod without an address of IPv6 would believe it too
/// (CVE-2020-10749). A kernel without IPv6 has nothing to refuse. Runs inside the pod's namespace.
pub(super) fn refuse_routers(ifname: &str) -> Result<(), NetworkError> {
    match sysctl::set(&Path::new(CONF).join(ifname).join("accept_ra"), "0") {
        Err(NetworkError::File { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
