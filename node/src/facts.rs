//! What the node is: read once at the start from `/proc`, `/sys` and `/etc`.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use anyhow::{Context, Result};
use swiftlet_kubelet::NodeFacts;
use swiftlet_kubelet::node_status::{Amount, Pressure, SystemFacts};
use swiftlet_pleg::Mode;

use crate::configuration::Settings;
use crate::options::NodeOptions;
use crate::topology;

/// All facts but the source of lifecycle events, which [`kernel_events`] tells.
pub(crate) fn read(options: &NodeOptions, settings: &Settings) -> Result<NodeFacts> {
    let capacity = Amount {
        cpu_milli: cpus().saturating_mul(1000),
        memory_bytes: memory_bytes().context("/proc/meminfo has no MemTotal")?,
        ephemeral_storage_bytes: disk_bytes(&options.root_dir),
    };
    Ok(NodeFacts {
        hostname: options.node_name(),
        internal_ips: vec![node_ip(options)?.to_string()],
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

/// Whether starts and ends of containers come from the kernel.
pub(crate) fn kernel_events(mode: &Mode) -> Result<(), String> {
    match mode {
        Mode::Bpf => Ok(()),
        Mode::Relist { reason } => Err(reason.to_string()),
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

/// The address by which the node reaches others. No packet is sent: connecting a UDP socket only
/// asks the kernel's routes.
fn node_ip(options: &NodeOptions) -> Result<IpAddr> {
    if let Some(address) = options.node_ip {
        return Ok(address);
    }
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // An address of TEST-NET-1 (RFC 5737): it stands for "anywhere outside".
    if socket.connect("192.0.2.1:9").is_err() {
        return Ok(IpAddr::from([127, 0, 0, 1]));
    }
    Ok(socket
        .local_addr()
        .context("no address: set --node-ip")?
        .ip())
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
    use super::*;

    #[test]
    fn the_pretty_name_is_the_image() {
        assert_eq!(
            os_image("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"),
            "Debian GNU/Linux 12"
        );
        assert_eq!(os_image(""), "Linux");
    }

    #[test]
    fn this_machine_has_memory_and_disk() {
        assert!(memory_bytes().expect("MemTotal") > 0);
        assert!(disk_bytes(Path::new("/var/lib/does/not/exist/yet")) > 0);
    }
}
