//! What the node is: read once at the start from `/proc`, `/sys` and `/etc`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};
use swiftlet_kubelet::NodeFacts;
use swiftlet_kubelet::node_status::{Amount, Pressure, SystemFacts};
use swiftlet_pleg::{Mode, Source};

use crate::configuration::Settings;
use crate::options::NodeOptions;
use crate::topology;

/// Where nobody answers (RFC 863).
const DISCARD_PORT: u16 = 9;

/// All facts but the source of lifecycle events, which [`kernel_events`] tells.
pub(crate) fn read(options: &NodeOptions, settings: &Settings) -> Result<NodeFacts> {
    let capacity = Amount {
        cpu_milli: cpus().saturating_mul(1000),
        memory_bytes: memory_bytes().context("/proc/meminfo has no MemTotal")?,
        ephemeral_storage_bytes: disk_bytes(&options.root_dir),
    };
    Ok(NodeFacts {
        hostname: options.node_name(),
        internal_ips: texts(&node_ips(options)),
        pod_cidrs: texts(options.pod_cidr.values()),
        reserved: settings.resources.reserved(&capacity),
        capacity,
        taints: settings.taints.clone(),
        pods_max: usize::try_from(options.max_pods)?,
        system: system(),
        pressure: Pressure::default(),
        hugepages: topology::hugepages(),
        cpus: topology::cpus(),
        resolv_conf: std::fs::read_to_string(&options.resolv_conf).ok(),
        app_armor: app_armor(),
        ..NodeFacts::default()
    })
}

/// Whether starts and ends of containers come from the kernel programs; else from where, and why.
pub(crate) fn kernel_events(mode: &Mode) -> Result<(), String> {
    match mode.source {
        Source::Kernel => Ok(()),
        Source::Runtime | Source::Pidfd | Source::Relist => Err(mode.to_string()),
    }
}

fn cpus() -> i64 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    i64::try_from(cpus).unwrap_or(i64::MAX)
}

fn memory_bytes() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: i64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Size of the file system that holds volumes; 0 where it does not tell.
fn disk_bytes(folder: &Path) -> i64 {
    let known = folder
        .ancestors()
        .find_map(|folder| nix::sys::statvfs::statvfs(folder).ok());
    let bytes = known.map_or(0, |disk| disk.blocks().saturating_mul(disk.fragment_size()));
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The node's addresses: those that are given, or the ones by which it reaches others, of each
/// family that its pods have. A node without any calls itself 127.0.0.1.
pub(crate) fn node_ips(options: &NodeOptions) -> Vec<IpAddr> {
    let wanted: Vec<IpAddr> = if let Some(given) = &options.node_ip {
        given.values().to_vec()
    } else {
        let pods = options.pod_cidr.values().iter();
        pods.map(|range| any_like(range.addr())).collect()
    };
    let found = wanted.into_iter().filter_map(|address| match address {
        // As with the kubelet, this stands for "the default address of the family".
        any if any.is_unspecified() => address_towards(any),
        address => Some(address),
    });
    let found: Vec<_> = found.collect();
    if !found.is_empty() {
        return found;
    }
    let any = [
        IpAddr::from(Ipv4Addr::UNSPECIFIED),
        Ipv6Addr::UNSPECIFIED.into(),
    ];
    let any = any.into_iter().find_map(address_towards);
    vec![any.unwrap_or(Ipv4Addr::LOCALHOST.into())]
}

/// "Any address" of the same family.
fn any_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address from which packets to the outside go; `None` without a way there. No packet is
/// sent: connecting a UDP socket only asks the kernel's routes.
fn address_towards(any: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Addresses for documentation (RFC 5737, RFC 3849): they stand for "anywhere outside".
    let outside = if any.is_ipv4() {
        "192.0.2.1"
    } else {
        "2001:db8::1"
    };
    socket.connect((outside, DISCARD_PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn texts(values: &[impl ToString]) -> Vec<String> {
    values.iter().map(ToString::to_string).collect()
}

/// Whether the kernel enforces AppArmor profiles, and they can be loaded
/// (`HostSupports` of `github.com/opencontainers/runc/libcontainer/apparmor`).
fn app_armor() -> bool {
    Path::new("/sys/kernel/security/apparmor").exists()
        && line_of("/sys/module/apparmor/parameters/enabled").starts_with('Y')
}

fn system() -> SystemFacts {
    let machine_id = line_of("/etc/machine-id");
    let firmware = line_of("/sys/class/dmi/id/product_uuid").to_lowercase();
    SystemFacts {
        system_uuid: if firmware.is_empty() {
            machine_id.clone()
        } else {
            firmware
        },
        machine_id,
        boot_id: line_of("/proc/sys/kernel/random/boot_id"),
        kernel_version: line_of("/proc/sys/kernel/osrelease"),
        os_image: os_image(&std::fs::read_to_string("/etc/os-release").unwrap_or_default()),
        architecture: match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
        .to_owned(),
    }
}

fn line_of(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn os_image(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::Cli;

    #[test]
    fn the_pretty_name_is_the_image() {
        assert_eq!(
            os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(os_image(""), "Linux");
    }

    fn ips(arguments: &[&str]) -> Vec<String> {
        let command = [&["swiftlet-node"], arguments].concat();
        let cli = Cli::try_parse_from(command).expect("options");
        texts(&node_ips(&cli.options))
    }

    #[test]
    fn addresses_that_are_given_are_taken_as_they_are() {
        assert_eq!(ips(&["--node-ip", "192.0.2.7"]), ["192.0.2.7"]);
        let both = "2001:db8::7,192.0.2.7";
        assert_eq!(ips(&["--node-ip", both]), ["2001:db8::7", "192.0.2.7"]);
    }

    #[test]
    fn a_node_has_an_address_of_some_family_whatever_its_pods_have() {
        for pods in ["10.1.0.0/24", "fd00::/64", "fd00::/64,10.1.0.0/24"] {
            let found = ips(&["--pod-cidr", pods]);
            assert!(!found.is_empty());
            assert!(
                found.iter().all(|one| one != "0.0.0.0" && one != "::"),
                "{found:?}"
            );
        }
    }

    #[test]
    fn this_machine_has_memory_and_disk() {
        assert!(memory_bytes().expect("MemTotal") > 0);
        assert!(disk_bytes(Path::new("/var/lib/does/not/exist/yet")) > 0);
    }
}
