//! Which namespaces there are on the host, who holds them, and whether anybody is in them.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use swiftlet_sys::netns;

use crate::netlink::nsid;
use crate::netlink::socket::NetlinkSocket;

/// How the runtime names the namespaces that it makes for sandboxes (`NewNetNS` of containerd's
/// pkg/netns).
const NETNS_PREFIX: &str = "cni-";

/// Device and inode of a namespace's file: the namespace's identity.
type Identity = (u64, u64);

/// Where pairs of the host lead, by the number that the host has for a namespace. Looked up once
/// for all pairs of a sweep.
#[derive(Debug, Default)]
pub(super) struct Namespaces(HashMap<i32, Place>);

/// One namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Where the runtime mounted it, if the runtime made it.
    pub(super) mounted: Option<PathBuf>,
    /// Somebody is in it, or somebody who is not the runtime mounted it: it is theirs to close.
    pub(super) in_use: bool,
}

impl Namespaces {
    /// Looks at all that are mounted in the folder, and at those of all threads. The socket is in
    /// the host's namespace.
    pub(super) fn look(socket: &mut NetlinkSocket, netns_dir: &Path) -> Self {
        let mut all = Self::default();
        let mut threads = of_threads();
        let mounts = entries(netns_dir.to_owned());
        for path in mounts.map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_the_runtimes = name.starts_with(NETNS_PREFIX);
            let is_entered = identity(&path).is_some_and(|id| threads.remove(&id).is_some());
            if let Some(place) = all.at(socket, &path) {
                place.in_use |= is_entered || !is_the_runtimes;
                place.mounted = is_the_runtimes.then_some(path);
            }
        }
        for path in threads.into_values() {
            if let Some(place) = all.at(socket, &path) {
                place.in_use = true;
            }
        }
        all
    }

    /// The namespace that the host knows by this number.
    pub(super) fn get(&self, number: i32) -> Option<&Place> {
        self.0.get(&number)
    }

    /// A file that is no namespace, one that has gone, or one that no pair leads to, has no place.
    fn at(&mut self, socket: &mut NetlinkSocket, path: &Path) -> Option<&mut Place> {
        let namespace = netns::open(path).ok()?;
        let number = nsid::of(socket, namespace.as_fd()).ok().flatten()?;
        Some(self.0.entry(number).or_default())
    }
}

/// The namespaces that a thread of any process is in, and a path to each.
fn of_threads() -> HashMap<Identity, PathBuf> {
    let threads = entries(PathBuf::from("/proc"))
        .flat_map(|process| entries(process.path().join("task")))
        .map(|thread| thread.path().join("ns/net"));
    threads
        .filter_map(|path| Some((identity(&path)?, path)))
        .collect()
}

/// What is in the folder; nothing if it cannot be read.
fn entries(folder: PathBuf) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn identity(path: &Path) -> Option<Identity> {
    let file = fs::metadata(path).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_a_thread_in_it_is_one_of_threads() {
        let own = identity(Path::new("/proc/thread-self/ns/net")).unwrap();
        assert!(of_threads().contains_key(&own));
        assert_eq!(identity(Path::new("/nowhere/cni-1")), None);
    }
}
