//! IPv6 in the pod: what its interface must be set to before it is brought up.

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
        // Any pod on the bridge could say that it is the router (CVE-2020-10749).
        (ifname, "accept_ra", "0"),
    ];
    for (interface, key, value) in settings {
        sysctl::set(&Path::new(CONF).join(interface).join(key), value)?;
    }
    Ok(())
}
