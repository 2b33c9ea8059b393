//! What a stack may have left on the machine.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::containerd::ctr;

/// A picture of everything that a stack makes outside of its own folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Network interfaces.
    pub links: BTreeSet<String>,
    /// Named network namespaces.
    pub namespaces: BTreeSet<String>,
    /// Mount points.
    pub mounts: BTreeSet<String>,
    /// Pod cgroups in any hierarchy.
    pub cgroups: BTreeSet<String>,
    /// nftables tables.
    pub tables: BTreeSet<String>,
    /// Processes whose command line names the stack's folder.
    pub processes: BTreeSet<String>,
}

impl Machine {
    /// Looks at the machine; `dir` is the stack's folder, `cgroup_root` the name of its cgroup.
    pub fn look(dir: &Path, cgroup_root: &str) -> Self {
        Self {
            links: names_in("/sys/class/net"),
            namespaces: names_in("/run/netns"),
            mounts: mounts(),
            cgroups: cgroups(cgroup_root),
            tables: tables(),
            processes: processes(dir),
        }
    }

    /// What is here and was not there before, a line each.
    pub fn since(&self, before: &Self) -> Vec<String> {
        let kinds = [
            ("interface", &self.links, &before.links),
            ("network namespace", &self.namespaces, &before.namespaces),
            ("mount", &self.mounts, &before.mounts),
            ("cgroup", &self.cgroups, &before.cgroups),
            ("nft table", &self.tables, &before.tables),
            ("process", &self.processes, &before.processes),
        ];
        let added = |(kind, now, then): (&str, &BTreeSet<String>, &BTreeSet<String>)| {
            now.difference(then)
                .map(|name| format!("{kind} {name}"))
                .collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(added).collect()
    }
}

/// Addresses that a stack's networks still hold: a file each, in host-local's format, whose name is
/// the address (with `_` for `:` where the file system asks for it).
pub fn addresses_held(dir: &Path) -> BTreeSet<String> {
    let networks = std::fs::read_dir(dir.join("run/networks"));
    let networks = networks.into_iter().flatten().flatten();
    let files =
        networks.flat_map(|network| std::fs::read_dir(network.path()).into_iter().flatten());
    let names = files
        .flatten()
        .map(|file| file.file_name().to_string_lossy().replace('_', ":"));
    names
        .filter(|name| name.parse::<IpAddr>().is_ok())
        .collect()
}

/// What a runtime still holds of its pods: containers, tasks, and layers that were written to.
pub fn runtime_objects(socket: &Path) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for (kind, words) in [
        ("container", ["containers", "list", "--quiet"]),
        ("task", ["tasks", "list", "--quiet"]),
    ] {
        let listing = ctr(socket, &words)?;
        found.extend(listing.lines().map(|line| format!("{kind} {line}")));
    }
    let snapshots = ctr(socket, &["snapshots", "list"])?;
    let active = snapshots.lines().filter(|line| line.contains("Active"));
    found.extend(active.map(|line| format!("snapshot {line}")));
    Ok(found)
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn mounts() -> BTreeSet<String> {
    let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(str::to_owned)
        .collect()
}

/// The root cgroup itself stays for the next start; what lies below it belongs to pods.
fn cgroups(root: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let hierarchies = names_in("/sys/fs/cgroup")
        .into_iter()
        .map(|name| format!("{name}/{root}"));
    for folder in hierarchies.chain([root.to_owned()]) {
        collect_folders(&Path::new("/sys/fs/cgroup").join(folder), &mut found);
    }
    found
}

fn collect_folders(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.insert(entry.path().display().to_string());
            collect_folders(&entry.path(), found);
        }
    }
}

fn tables() -> BTreeSet<String> {
    let Ok(output) = Command::new("nft").args(["list", "tables"]).output() else {
        return BTreeSet::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

fn processes(dir: &Path) -> BTreeSet<String> {
    let own = std::process::id().to_string();
    let needle = dir.display().to_string();
    let mut found = BTreeSet::new();
    for pid in names_in("/proc") {
        let is_other = pid.parse::<u32>().is_ok() && pid != own;
        let Some(line) = is_other.then(|| command_line(&pid)).flatten() else {
            continue;
        };
        let is_stack = ["swiftlet-", "containerd"]
            .iter()
            .any(|name| line.contains(name));
        if is_stack && line.contains(&needle) && !line.contains("swiftlet-stack") {
            found.insert(format!("{pid} {line}"));
        }
    }
    found
}

fn command_line(pid: &str) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(
        String::from_utf8_lossy(&bytes)
            .replace('\0', " ")
            .trim()
            .to_owned(),
    )
}
