//! What dead sandboxes leave on the host: veth pairs on our bridges, and namespaces that nobody
//! closes.
//!
//! Both belong together: a pair goes with its namespace. So a namespace that is certainly dead is
//! unmounted, which costs nothing; only where there is none is a link deleted, one by one and with
//! pauses, because each deletion holds the kernel's lock for links that new pods wait for.

use std::collections::HashSet;
use std::path::Path;
use std::thread;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};

use super::names;
use super::namespaces::{Namespaces, Place};
use crate::bridge;
use crate::disk;
use crate::error::{NetworkError, file_error};
use crate::netlink::link::Link;
use crate::netlink::socket::NetlinkSocket;

/// Links that one sweep deletes at most: some ten seconds, a fraction of the time between sweeps.
pub(super) const LINKS_PER_SWEEP_MAX: usize = 64;
/// Pause between two deletions: some three times as long as one takes, so that pods that start
/// have the lock for most of the time.
const PAUSE: Duration = Duration::from_millis(100);

/// A veth pair of ours that no sandbox has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub(super) name: String,
    index: u32,
    /// The number of the one that the pod's end is in.
    namespace: Option<i32>,
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
            namespace: link.peer_netns,
        })
        .collect()
}

/// Removes pairs with their namespaces, at most [`LINKS_PER_SWEEP_MAX`] of them, and says which
/// are gone. Goes on after a failure.
pub(super) fn remove(
    socket: &mut NetlinkSocket,
    orphans: &[Orphan],
    netns_dir: &Path,
) -> (HashSet<String>, Result<(), NetworkError>) {
    let mut errors = Vec::new();
    let mut gone = HashSet::new();
    if orphans.is_empty() {
        return (gone, Ok(()));
    }
    let namespaces = Namespaces::look(socket, netns_dir);
    let mut unmounted = HashSet::new();
    for orphan in orphans {
        if gone.len() == LINKS_PER_SWEEP_MAX {
            break;
        }
        let place = orphan.namespace.and_then(|number| namespaces.get(number));
        let outcome = match place {
            // Somebody who is not the runtime works in there: it is theirs to close.
            Some(place) if place.in_use => {
                let (path, link) = (&place.mounted, &orphan.name);
                tracing::warn!(
                    ?path,
                    link,
                    "a namespace without a sandbox is in use and stays"
                );
                continue;
            }
            Some(Place {
                mounted: Some(path),
                ..
            }) => {
                // It may have had two pairs.
                if unmounted.insert(path) {
                    unmount(path)
                } else {
                    Ok(())
                }
            }
            _ => {
                if !gone.is_empty() {
                    thread::sleep(PAUSE);
                }
                bridge::delete_link(socket, orphan.index)
            }
        };
        match outcome {
            Ok(()) => drop(gone.insert(orphan.name.clone())),
            Err(error) => errors.push(error),
        }
    }
    (gone, NetworkError::collected(errors))
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
            peer_netns: Some(0),
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
}
