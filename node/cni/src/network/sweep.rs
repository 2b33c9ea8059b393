//! Leftovers of sandboxes that the runtime does not know: at the start, and from time to time.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{MutexGuard, PoisonError};

use super::{Network, leftovers, names};
use crate::error::NetworkError;
use crate::ipam::Retain;
use crate::ipam::allocator::Holder;
use crate::netlink::link;
use crate::netlink::socket::NetlinkSocket;

/// The pods' interface, as every runtime that speaks CRI calls it: for sandboxes that are alive and
/// whose address file is not there.
const IFNAME: &str = "eth0";

/// What was nobody's at the last sweep.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By container id.
    sandboxes: HashSet<String>,
    /// By the name of the host's end.
    pairs: HashSet<String>,
}

impl Network {
    /// Frees what belongs to sandboxes that are not alive and were not at the sweep before: one
    /// that is just being made is not in the runtime's list yet. Says of how many sandboxes; pairs
    /// that are left without a sandbox go too.
    pub(crate) fn sweep(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let sandboxes = self.sweep_sandboxes(live);
        let pairs = self.sweep_pairs(live);
        if let Ok(count @ 1..) = pairs {
            tracing::info!(count, "veth pairs of dead sandboxes removed");
        }
        match (sandboxes, pairs) {
            (Ok(freed), Ok(_)) => Ok(freed),
            (sandboxes, pairs) => {
                let errors = [sandboxes.err(), pairs.err()];
                NetworkError::collected(errors.into_iter().flatten().collect()).map(|()| 0)
            }
        }
    }

    /// The containers that hold anything now.
    pub(crate) fn holding(&self) -> HashSet<String> {
        let pools = self.open_pools();
        let mut holding: HashSet<_> = pools.iter().flat_map(|pool| pool.containers()).collect();
        holding.extend(self.lock_host_ports().containers());
        holding.extend(self.restrictions.containers());
        holding
    }

    /// Frees what those of `held` have that are not alive, at one look, and says of how many: for
    /// holders of whom it is known that nobody is making them any more. Their pairs go first: a
    /// free address must not answer from a namespace that nobody closes.
    pub(crate) fn free_lost(
        &self,
        mut held: HashSet<String>,
        live: &[&str],
    ) -> Result<usize, NetworkError> {
        held.retain(|id| !live.contains(&id.as_str()));
        // What is not freed here, the sweeps find.
        let lost: HashSet<_> = held
            .into_iter()
            .take(leftovers::LINKS_PER_SWEEP_MAX)
            .collect();
        let late = self.in_flight.wait_for(&lost, self.options().request_limit);
        let dead = &lost - &late;
        if dead.is_empty() {
            return Ok(0);
        }
        self.remove_pairs(&dead)?;
        self.free(&dead).map(|()| dead.len())
    }

    /// Frees addresses from before the start whose sandbox is not alive, and says how many.
    pub(crate) fn reconcile(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let wanted = |holder: &Holder| live.contains(&holder.container_id.as_str());
        let mut freed = 0;
        let mut errors = Vec::new();
        // The ports first: the address may be another pod's a moment later.
        errors.extend(self.lock_host_ports().retain(live).err());
        errors.extend(self.restrictions.reconcile(live).err());
        for pool in self.open_pools() {
            match pool.retain(wanted, Retain::AdoptedOnly) {
                Ok(count) => freed += count,
                Err(error) => errors.push(error),
            }
        }
        NetworkError::collected(errors).map(|()| freed)
    }

    /// Addresses, host ports, and what bounds pods.
    fn sweep_sandboxes(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let mut missing = self.holding();
        missing.retain(|id| !live.contains(&id.as_str()));
        let dead = seen_twice(&mut self.lock_suspects().sandboxes, missing);
        self.free(&dead).map(|()| dead.len())
    }

    /// What these hold; their pairs stay.
    fn free(&self, dead: &HashSet<String>) -> Result<(), NetworkError> {
        let ports = dead.iter().map(|id| self.lock_host_ports().remove(id));
        let mut errors: Vec<_> = ports.filter_map(Result::err).collect();
        if !dead.is_empty() {
            errors.extend(self.restrictions.remove_dead(dead).err());
        }
        let wanted = |holder: &Holder| !dead.contains(&holder.container_id);
        let pools = self.open_pools();
        for pool in pools.iter().filter(|_| !dead.is_empty()) {
            errors.extend(pool.retain(wanted, Retain::All).err());
        }
        NetworkError::collected(errors)
    }

    /// Pairs, and the namespaces that hold them.
    fn sweep_pairs(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let mut socket = NetlinkSocket::route()?;
        // Before the holders: a pod that comes in between is in their list and not in this one.
        let links = link::list(&mut socket)?;
        let of_live = live.iter().map(|id| Holder {
            container_id: (*id).to_owned(),
            ifname: IFNAME.to_owned(),
        });
        let holders = self
            .open_pools()
            .into_iter()
            .flat_map(|pool| pool.holders());
        let wanted: HashSet<_> = holders
            .chain(of_live)
            .map(|holder| names::host_veth(&holder))
            .collect();
        let mut orphans = leftovers::orphans(&links, &self.bridge_names(), &wanted);
        let found = orphans.iter().map(|orphan| orphan.name.clone()).collect();
        let dead = seen_twice(&mut self.lock_suspects().pairs, found);
        orphans.retain(|orphan| dead.contains(&orphan.name));
        leftovers::remove(&mut socket, &orphans, &self.options().netns_dir)
    }

    /// The pairs of these, with the namespaces that hold them.
    fn remove_pairs(&self, dead: &HashSet<String>) -> Result<(), NetworkError> {
        let mut socket = NetlinkSocket::route()?;
        let links = link::list(&mut socket)?;
        let pools = self.open_pools();
        let holders = pools.iter().flat_map(|pool| pool.holders());
        let of_dead = holders.filter(|holder| dead.contains(&holder.container_id));
        let names: HashSet<_> = of_dead.map(|holder| names::host_veth(&holder)).collect();
        let mut orphans = leftovers::orphans(&links, &self.bridge_names(), &HashSet::new());
        orphans.retain(|orphan| names.contains(&orphan.name));
        let netns_dir = &self.options().netns_dir;
        leftovers::remove(&mut socket, &orphans, netns_dir).map(drop)
    }

    fn lock_suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is missing now and was before. The others are remembered until the next time.
fn seen_twice<T: Clone + Eq + Hash>(before: &mut HashSet<T>, now: HashSet<T>) -> HashSet<T> {
    let twice: HashSet<_> = now.intersection(before).cloned().collect();
    // What was too much for one sweep is still there the next time, and is old enough then.
    *before = now;
    twice
}
