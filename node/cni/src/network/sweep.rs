//! Leftovers of sandboxes that the runtime does not know: at the start, and from time to time.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Network, leftovers, names};
use crate::error::NetworkError;
use crate::ipam::Retain;
use crate::ipam::allocator::Holder;
use crate::ipam::store;
use crate::netlink::link;
use crate::netlink::socket::NetlinkSocket;

/// The pods' interface, as every runtime that speaks CRI calls it: for sandboxes that are alive and
/// whose address file is not there.
const IFNAME: &str = "eth0";

/// What is nobody's, and at which sweep that was seen first.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// By container id.
    sandboxes: HashMap<String, Instant>,
    /// By the name of the host's end.
    pairs: HashMap<String, Instant>,
}

impl Network {
    /// Frees what belongs to sandboxes that have not been alive for long and at two sweeps: one
    /// that is just being made is not in the runtime's list yet. Says of how many sandboxes; pairs
    /// that are left without a sandbox go too, and the bridges are made as they should be.
    pub(crate) fn sweep(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let bridges =
            NetlinkSocket::route().and_then(|mut socket| self.bridges.verify(&mut socket));
        self.verify_rules();
        let sandboxes = self.sweep_sandboxes(live);
        let pairs = self.sweep_pairs(live);
        if let Ok(count @ 1..) = pairs {
            tracing::info!(count, "veth pairs of dead sandboxes removed");
        }
        match (sandboxes, pairs, bridges) {
            (Ok(freed), Ok(_), Ok(())) => Ok(freed),
            (sandboxes, pairs, bridges) => {
                let errors = [sandboxes.err(), pairs.err(), bridges.err()];
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
        self.free(&(&lost - &late))
    }

    /// Frees addresses from before the start whose sandbox is not alive, and says how many.
    ///
    /// Where the host's end of a pair is there, the sandbox may be one that is just being made: the
    /// process before this one answered, and the runtime's list is older. The sweeps decide.
    pub(crate) fn reconcile(&self, live: &[&str]) -> Result<usize, NetworkError> {
        let attached = self.attached(self.holding())?;
        let spared: Vec<&str> = live
            .iter()
            .copied()
            .chain(attached.iter().map(String::as_str))
            .collect();
        let mut freed = 0;
        let mut errors = Vec::new();
        // The ports first: the address may be another pod's a moment later.
        errors.extend(self.lock_host_ports().retain(&spared).err());
        errors.extend(self.restrictions.reconcile(&spared).err());
        let reachable = self.reachable();
        let wanted = |holder: &Holder| {
            let id = &holder.container_id;
            spared.contains(&id.as_str()) || reachable.contains(id)
        };
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
        let limit = self.options().missing_limit;
        let dead = missing_long(&mut self.lock_suspects().sandboxes, missing, limit);
        let busy = self.in_flight.wait_for(&dead, Duration::ZERO);
        self.free(&(&dead - &busy))
    }

    /// Frees what these have, and says of how many. Their pairs go first: a free address must not
    /// answer from a namespace that nobody closes. Whose pair stays, keeps all.
    fn free(&self, dead: &HashSet<String>) -> Result<usize, NetworkError> {
        if dead.is_empty() {
            return Ok(0);
        }
        let (paired, pairs) = self.remove_pairs(dead)?;
        let dead = dead - &paired;
        let ports = dead.iter().map(|id| self.lock_host_ports().remove(id));
        let mut errors: Vec<_> = ports.filter_map(Result::err).collect();
        errors.extend(pairs.err());
        errors.extend(self.restrictions.remove_dead(&dead).err());
        let reachable = self.reachable();
        let wanted = |holder: &Holder| {
            let id = &holder.container_id;
            !dead.contains(id) || reachable.contains(id)
        };
        for pool in self.open_pools() {
            errors.extend(pool.retain(wanted, Retain::All).err());
        }
        NetworkError::collected(errors).map(|()| dead.len())
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
        let pools = self.open_pools();
        let holders = pools.iter().flat_map(|pool| pool.holders());
        let wanted: HashSet<_> = holders
            .chain(of_live)
            .chain(self.holders_of_others()?)
            .map(|holder| names::host_veth(&holder))
            .collect();
        let mut orphans = leftovers::orphans(&links, &self.bridges.names(), &wanted);
        let found = orphans.iter().map(|orphan| orphan.name.clone()).collect();
        let limit = self.options().missing_limit;
        let dead = missing_long(&mut self.lock_suspects().pairs, found, limit);
        orphans.retain(|orphan| dead.contains(&orphan.name));
        let netns_dir = &self.options().netns_dir;
        let (gone, outcome) = leftovers::remove(&mut socket, &orphans, netns_dir);
        outcome.map(|()| gone.len())
    }

    /// Removes the pairs of these, with the namespaces that hold them. Says whose pair stays,
    /// because somebody else is in its namespace or because it was too much for one sweep.
    fn remove_pairs(
        &self,
        dead: &HashSet<String>,
    ) -> Result<(HashSet<String>, Result<(), NetworkError>), NetworkError> {
        let mut socket = NetlinkSocket::route()?;
        let links = link::list(&mut socket)?;
        let mut orphans = leftovers::orphans(&links, &self.bridges.names(), &HashSet::new());
        let of_dead: HashMap<_, _> = self
            .pairs_of(dead)
            .into_iter()
            .filter(|(pair, _)| orphans.iter().any(|orphan| orphan.name == *pair))
            .collect();
        orphans.retain(|orphan| of_dead.contains_key(&orphan.name));
        let netns_dir = &self.options().netns_dir;
        let (gone, outcome) = leftovers::remove(&mut socket, &orphans, netns_dir);
        let stay = of_dead.into_iter().filter(|(pair, _)| !gone.contains(pair));
        Ok((stay.map(|(_, id)| id).collect(), outcome))
    }

    /// Those of whom the host's end of a pair is there.
    fn attached(&self, ids: HashSet<String>) -> Result<HashSet<String>, NetworkError> {
        let links = link::list(&mut NetlinkSocket::route()?)?;
        let mut pairs = self.pairs_of(&ids);
        let there = links.iter().filter_map(|link| pairs.remove(&link.name));
        Ok(there.collect())
    }

    /// The names of the host's ends that these have if they are attached, with their containers.
    fn pairs_of(&self, ids: &HashSet<String>) -> HashMap<String, String> {
        let pools = self.open_pools();
        let holders = pools.iter().flat_map(|pool| pool.holders());
        let held = holders.filter(|holder| ids.contains(&holder.container_id));
        // Without an address: by the name that every runtime gives.
        let others = ids.iter().map(|id| Holder {
            container_id: id.clone(),
            ifname: IFNAME.to_owned(),
        });
        let pairs = held.chain(others);
        pairs
            .map(|holder| (names::host_veth(&holder), holder.container_id))
            .collect()
    }

    /// Who has an address of a network that nobody has asked for since the start.
    fn holders_of_others(&self) -> Result<Vec<Holder>, NetworkError> {
        let known = self.pool_folders();
        let data_dirs: HashSet<_> = known.iter().filter_map(|dir| dir.parent()).collect();
        let mut holders = Vec::new();
        for data_dir in data_dirs {
            let others = store::load_others(data_dir, &known)?;
            holders.extend(others.into_iter().map(|(_, holder)| holder));
        }
        Ok(holders)
    }

    /// The containers that host ports lead to: their addresses are not free.
    pub(super) fn reachable(&self) -> HashSet<String> {
        self.lock_host_ports().containers().into_iter().collect()
    }

    fn lock_suspects(&self) -> MutexGuard<'_, Suspects> {
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is missing now and was at a sweep before, at least so long ago. All that is missing is
/// remembered until it is not any more.
fn missing_long<T: Clone + Eq + Hash>(
    since: &mut HashMap<T, Instant>,
    missing: HashSet<T>,
    limit: Duration,
) -> HashSet<T> {
    let now = Instant::now();
    since.retain(|one, _| missing.contains(one));
    let long = since
        .iter()
        .filter(|(_, first)| now.duration_since(**first) >= limit);
    let long = long.map(|(one, _)| one.clone()).collect();
    for one in missing {
        since.entry(one).or_insert(now);
    }
    long
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_twice_is_not_enough_if_the_looks_follow_one_another_at_once() {
        let missing = HashSet::from(["a"]);
        let mut since = HashMap::new();
        let hour = Duration::from_hours(1);
        for _ in 0..3 {
            assert!(missing_long(&mut since, missing.clone(), hour).is_empty());
        }
        assert_eq!(
            missing_long(&mut since, missing.clone(), Duration::ZERO),
            missing
        );
        // Back in between: it begins anew.
        missing_long(&mut since, HashSet::new(), Duration::ZERO);
        assert!(missing_long(&mut since, missing, Duration::ZERO).is_empty());
    }
}
