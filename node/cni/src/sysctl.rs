//! Settings of the kernel below `/proc/sys/net`, which belong to the network namespace of the
//! thread that reads or writes them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::error::{NetworkError, file_error};

const SYSCTLS: &str = "/proc/sys";
/// Stands for the pod's interface in a key, as with the reference plugin `tuning`.
const INTERFACE: &str = "IFNAME";

/// A setting of the pod's namespace that the conf asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sysctl {
    /// As it is written: dots or slashes between its parts.
    key: String,
    value: String,
}

impl Sysctl {
    /// A setting, if it is one of the network: all others belong to the whole machine.
    pub(crate) fn new(key: &str, value: &str) -> Option<Self> {
        let inside = |part: &str| !part.is_empty() && part != "." && part != "..";
        let path = key.replace('.', "/");
        let of_the_network = path.starts_with("net/") && path.split('/').all(inside);
        of_the_network.then(|| Self {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }

    /// Writes the value. Runs inside the pod's namespace.
    pub(crate) fn apply(&self, ifname: &str) -> Result<(), NetworkError> {
        set(&self.path(ifname), &self.value)
    }

    /// The value that the kernel has, if it is another one. Runs inside the pod's namespace.
    pub(crate) fn difference(&self, ifname: &str) -> Result<Option<String>, NetworkError> {
        let path = self.path(ifname);
        let value = fs::read_to_string(&path).map_err(file_error("read", &path))?;
        Ok((!same(&value, &self.value)).then(|| {
            format!(
                "{} is {:?} instead of {:?}",
                self.key,
                value.trim(),
                self.value
            )
        }))
    }

    fn path(&self, ifname: &str) -> PathBuf {
        let relative = self.key.replace('.', "/").replacen(INTERFACE, ifname, 1);
        Path::new(SYSCTLS).join(relative)
    }
}

/// Sets a sysctl.
pub(crate) fn set(path: &Path, value: &str) -> Result<(), NetworkError> {
    // Read first: a write, even of the same value, takes the kernel's lock and tells everyone.
    // Some can be written and not read.
    if fs::read_to_string(path).is_ok_and(|present| same(&present, value)) {
        return Ok(());
    }
    disk::write(path, value).map_err(file_error("write", path))
}

/// The kernel puts tabs between numbers and a line break at the end.
fn same(present: &str, wanted: &str) -> bool {
    present.split_whitespace().eq(wanted.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_network_alone_are_accepted() {
        for key in ["net.core.somaxconn", "net/ipv4/conf/IFNAME/arp_filter"] {
            assert!(Sysctl::new(key, "1").is_some(), "{key}");
        }
        for key in [
            "kernel.shmmax",
            "net",
            "",
            "net/../kernel/x",
            "net..core",
            "/net/core/x",
        ] {
            assert_eq!(Sysctl::new(key, "1"), None, "{key}");
        }
    }

    #[test]
    fn the_interface_stands_where_its_placeholder_was() {
        let sysctl = Sysctl::new("net.ipv4.conf.IFNAME.arp_filter", "1").unwrap();
        let path = Path::new("/proc/sys/net/ipv4/conf/eth0/arp_filter");
        assert_eq!(sysctl.path("eth0"), path);
    }

    #[test]
    fn values_are_the_same_whatever_white_space_is_between_them() {
        assert!(same("32768\t60999\n", "32768 60999"));
        assert!(!same("1\n", "0"));
    }
}
