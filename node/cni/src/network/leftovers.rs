//! What dead sandboxes leave on the host: veth pairs on our bridges, and namespaces that nobody
//! closes.
//!
//! Both belong together: a pair goes with its namespace. So a namespace that is certainly dead is
//! unmounted, which costs nothing; only where there is none is a link deleted, one by one and with
//! pauses, because each deletion holds the kernel's lock for links that new pods wait for.

use std::collections::HashSet;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use swiftlet_sys::netns;

use super::names;
use crate::bridge;
use crate::disk;
use crate::error::{NetworkError, file_error};
use crate::netlink::link::{self, Link};
use crate::netlink::socket::NetlinkSocket;

/// Links that one sweep deletes at most: some ten seconds, a fraction of the time between sweeps.
pub(super) const LINKS_PER_SWEEP_MAX: usize = 64;
/// Pause between two deletions: some three times as long as one takes, so that pods that start
/// have the lock for most of the time.
const PAUSE: Duration = Duration::from_millis(100);
/// How the runtime names the namespaces that it makes for sandboxes (`NewNetNS` of containerd's
/// pkg/netns).
const NETNS_PREFIX: &str = "cni-";

/// A veth pair of ours that no sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) name: String,
    index: u32,
    peer: Option<u32>,
}

/// The pairs that none of `wanted` is: on one of our bridges and named as only we name them. Pure.
pub(super) fn orphans(links: &[Link], bridges: &[String], wanted: &HashSet<String>) -> Vec<Orphan> {
    let ours = links
        .iter()
        .filter(|link| link.is_bridge && (link.is_own || bridges.contains(&link.name)));
    let ours: HashSet<_> = ours.map(|bridge| bridge.index).collect();
    let is_orphan = |link: &&Link| {
        link.is_veth
            && link.master.is_some_and(|master| ours.contains(&master))
            && names::is_host_veth(&link.name)
            && !wanted.contains(&link.name)
    };
    links
        .iter()
        .filter(is_orphan)
        .map(|link| Orphan {
            name: link.name.clone(),
            index: link.index,
            peer: link.peer,
        })
        .collect()
}

/// Removes the pairs with their namespaces, and says how many. Goes on after a failure.
pub(super) fn remove(
    socket: &mut NetlinkSocket,
    orphans: &[Orphan],
    netns_dir: &Path,
) -> Result<usize, NetworkError> {
    let mut errors = Vec::new();
    let mut removed = 0;
    let mut namespaces = namespaces(netns_dir);
    for orphan in orphans.iter().take(LINKS_PER_SWEEP_MAX) {
        let at = namespaces.iter().position(|path| contains(path, orphan));
        let outcome = match at.map(|at| namespaces.swap_remove(at)) {
            Some(path) if in_use(&path) => {
                // Somebody who is not the runtime works in there: it is theirs to close.
                let (path, link) = (path.display(), &orphan.name);
                tracing::warn!(%path, link, "a dead sandbox's namespace is in use and stays");
                continue;
            }
            Some(path) => unmount(&path),
            None => {
                if removed > 0 {
                    thread::sleep(PAUSE);
                }
                bridge::delete_link(socket, orphan.index)
            }
        };
        match outcome {
            Ok(()) => removed += 1,
            Err(error) => errors.push(error),
        }
    }
    NetworkError::collected(errors).map(|()| removed)
}

/// The runtime's namespaces that are mounted; none if the folder cannot be read.
fn namespaces(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let of_a_sandbox = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(NETNS_PREFIX)
    });
    of_a_sandbox.map(|entry| entry.path()).collect()
}

/// Whether the pair's other end is in the namespace: each end knows the other's number.
fn contains(path: &Path, orphan: &Orphan) -> bool {
    // A file that is no namespace, or one that has gone, contains nothing.
    let links = netns::open(path)
        .and_then(|namespace| {
            netns::run_in(namespace.as_fd(), || {
                NetlinkSocket::route().and_then(|mut socket| link::list(&mut socket))
            })
        })
        .ok()
        .and_then(Result::ok);
    links.unwrap_or_default().iter().any(|link| {
        link.is_veth && link.peer == Some(orphan.index) && orphan.peer == Some(link.index)
    })
}

/// Whether a thread of any process is in the namespace.
fn in_use(path: &Path) -> bool {
    let Ok(namespace) = fs::metadata(path) else {
        return false;
    };
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    entries(PathBuf::from("/proc"))
        .flat_map(|process| entries(process.path().join("task")))
        .filter_map(|thread| fs::metadata(thread.path().join("ns/net")).ok())
        .any(|own| own.ino() == namespace.ino() && own.dev() == namespace.dev())
}

/// The namespace ends with its last user, and the pair with it, in the background.
fn unmount(path: &Path) -> Result<(), NetworkError> {
    umount2(path, MntFlags::MNT_DETACH)
        .map_err(|errno| file_error("unmount", path)(errno.into()))?;
    tracing::info!(path = %path.display(), "namespace of a dead sandbox unmounted");
    disk::remove_file(path).map_err(file_error("remove", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::allocator::Holder;

    fn link(index: u32, name: &str, master: Option<u32>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            mac: None,
            up: true,
            mtu: None,
            is_bridge: master.is_none(),
            is_veth: master.is_some(),
            is_own: name == "sw0",
            alias: None,
            master,
            peer: Some(2),
        }
    }

    fn veth(id: &str) -> String {
        names::host_veth(&Holder {
            container_id: id.to_owned(),
            ifname: "eth0".to_owned(),
        })
    }

    #[test]
    fn only_our_pairs_on_our_bridges_without_a_sandbox_are_orphans() {
        let (dead, live, adopted) = (veth("dead"), veth("live"), veth("adopted"));
        let links = [
            link(1, "sw0", None),
            link(2, "docker0", None),
            link(3, "cni0", None),
            link(4, &dead, Some(1)),
            link(5, &live, Some(1)),
            link(6, &adopted, Some(3)),
            // The reference plugin's name, and Docker's, on our bridge; ours on a foreign one.
            link(7, "veth0a1b2c3d", Some(1)),
            link(8, "veth0a1b2c3", Some(1)),
            link(9, &veth("elsewhere"), Some(2)),
        ];
        let wanted = HashSet::from([live]);
        let found = orphans(&links, &["cni0".to_owned()], &wanted);
        let names: Vec<_> = found.into_iter().map(|orphan| orphan.name).collect();
        assert_eq!(names, [dead, adopted]);
    }

    #[test]
    fn a_namespace_with_a_thread_in_it_is_in_use() {
        assert!(in_use(Path::new("/proc/thread-self/ns/net")));
        assert!(!in_use(Path::new("/nowhere/cni-1")));
    }
}
