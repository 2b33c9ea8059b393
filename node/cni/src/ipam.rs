//! Addresses of pods: host-local's ranges and files, with the decision in memory.
//!
//! [`range`] and [`range_set`] say which addresses there are, [`allocator`] decides (pure),
//! [`store`] keeps host-local's files. [`Pool`] puts them together for one network: a pod gets one
//! address of each range set of its bridge, or none at all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::IpNet;

use crate::error::NetworkError;

pub mod allocator;
pub mod range;
pub mod range_set;
mod release;
pub mod requested;
mod runs;
pub mod store;

use allocator::{Allocator, Holder};
use range_set::RangeSet;
use requested::{Assignment, RequestedError};
use store::Store;

/// The addresses that a pod's interface holds: one per range set, in the order of the sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Never empty.
    pub addresses: Vec<LeasedAddress>,
    /// Which bridge's range sets they are from.
    pub shard: usize,
}

/// One address of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedAddress {
    /// The address with its subnet's prefix length.
    pub address: IpNet,
    /// The subnet's gateway.
    pub gateway: IpAddr,
}

impl Lease {
    /// The addresses alone.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(|leased| leased.address.addr())
    }

    /// Where packets to a destination of this family go: the first gateway that speaks it.
    pub fn gateway_towards(&self, destination: &IpNet) -> Option<IpAddr> {
        let mut gateways = self.addresses.iter().map(|leased| leased.gateway);
        gateways.find(|gateway| gateway.is_ipv4() == destination.addr().is_ipv4())
    }
}

/// The addresses of one network.
#[derive(Debug)]
pub(crate) struct Pool {
    /// A mutex and no owner task: the callers are threads, the decision takes a microsecond, and
    /// files are written outside of it.
    state: Mutex<State>,
    /// Somebody is done with freeing an address.
    released: Condvar,
    store: Store,
}

#[derive(Debug)]
struct State {
    /// Per bridge, then per range set.
    shards: Vec<Vec<Allocator>>,
    /// Addresses on disk that are outside of the ranges: from a conf of before. They are freed by
    /// DEL like all others.
    strangers: BTreeMap<IpAddr, Holder>,
    /// Addresses that a thread frees at this moment.
    releasing: BTreeSet<IpAddr>,
}

impl Pool {
    /// Opens the network's folder and takes over what is written there.
    ///
    /// Addresses from before the last boot are dropped: no pod of that time lives.
    pub(crate) fn open(dir: &Path, sets: Vec<Vec<RangeSet>>) -> Result<Self, NetworkError> {
        let store = Store::open(dir)?;
        let allocators = |sets: Vec<_>| sets.into_iter().map(Allocator::new).collect();
        let mut state = State {
            shards: sets.into_iter().map(allocators).collect(),
            strangers: BTreeMap::new(),
            releasing: BTreeSet::new(),
        };
        for (address, holder) in store.load()? {
            state.adopt(address, holder);
        }
        for (index, allocator) in state.allocators_mut().enumerate() {
            if let Some(address) = store.last_reserved(index)? {
                allocator.continue_after(address);
            }
        }
        Ok(Self {
            state: Mutex::new(state),
            released: Condvar::new(),
            store,
        })
    }

    /// Reserves one address of each set; their files are there when this returns. `first` is the
    /// preferred shard, the others are tried when one of its sets is full. Addresses that are
    /// asked for are given, or the error says why not.
    pub(crate) fn reserve(
        &self,
        holder: &Holder,
        first: usize,
        asked: &[IpAddr],
    ) -> Result<Lease, NetworkError> {
        loop {
            let lease = self.pick(holder, first, asked)?;
            match self.write(&lease, holder) {
                Ok(None) => return Ok(lease),
                // A file that we know nothing of: the reference plugin is at work in the same
                // folder. Its holder has the address; take the next one.
                Ok(Some(taken)) => self.adopt_file(taken)?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The lease that the holder has. One from before the conf changed may lack a set's address.
    pub(crate) fn find(&self, holder: &Holder) -> Result<Option<Lease>, NetworkError> {
        let known = self.state().lease_of(holder);
        if known.is_some() {
            return Ok(known);
        }
        self.look_again()?;
        Ok(self.state().lease_of(holder))
    }

    /// Frees what the container's interface holds. `Ok(false)` if that is nothing.
    pub(crate) fn release(&self, holder: &Holder) -> Result<bool, NetworkError> {
        let mut addresses = self.state().addresses_of(holder);
        if addresses.is_empty() {
            self.look_again()?;
            addresses = self.state().addresses_of(holder);
        }
        let any = !addresses.is_empty();
        let held = addresses
            .into_iter()
            .map(|address| (address, holder.clone()));
        self.release_all(held.collect())?;
        Ok(any)
    }

    /// Frees all addresses whose holder is not wanted any more, and says how many.
    pub(crate) fn retain(
        &self,
        wanted: impl Fn(&Holder) -> bool,
        which: Retain,
    ) -> Result<usize, NetworkError> {
        let unwanted = self.state().addresses_where(|holder, adopted| {
            (adopted || which == Retain::All) && !wanted(holder)
        });
        let count = unwanted.len();
        self.release_all(unwanted)?;
        Ok(count)
    }

    /// An address of the holder, if it has one: in the ranges, or outside of them from before.
    pub(crate) fn address_of(&self, holder: &Holder) -> Option<IpAddr> {
        self.state().address_of(holder)
    }

    /// The containers that hold an address.
    pub(crate) fn containers(&self) -> Vec<String> {
        let holders = self.holders().into_iter();
        holders.map(|holder| holder.container_id).collect()
    }

    /// The addresses of the holders that are picked.
    pub(crate) fn held_by(&self, picked: impl Fn(&Holder) -> bool) -> Vec<(IpAddr, Holder)> {
        self.state().addresses_where(|holder, _| picked(holder))
    }

    /// Who holds an address; whoever holds several is there several times.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let state = self.state();
        let held = state.allocators().flat_map(Allocator::holders);
        let held = held.map(|(_, holder, _)| holder);
        let all = held.chain(state.strangers.values());
        all.cloned().collect()
    }

    /// Keeps an address that something else uses (an adopted bridge) from ever being handed out.
    pub(crate) fn exclude(&self, address: IpAddr) {
        for allocator in self.state().allocators_mut() {
            allocator.exclude(address);
        }
    }

    /// Removes the files, if no address is held any more.
    pub(crate) fn remove_if_unused(&self) -> Result<(), NetworkError> {
        let used = !self.state().addresses_where(|_, _| true).is_empty();
        if used { Ok(()) } else { self.store.remove() }
    }

    /// Decides, in memory: the first shard that has an address in each of its sets.
    fn pick(&self, holder: &Holder, first: usize, asked: &[IpAddr]) -> Result<Lease, NetworkError> {
        let mut state = self.state();
        // Under the lock that the pick is made under: of two requests for one pod one is refused.
        if let Some(address) = state.address_of(holder) {
            return Err(NetworkError::AlreadyAttached {
                container_id: holder.container_id.clone(),
                address,
            });
        }
        if !asked.is_empty() {
            return state.take(asked, holder);
        }
        let shards = &mut state.shards;
        let count = shards.len();
        let now = Instant::now();
        let mut full = Vec::new();
        let in_order = (0..count).map(|offset| (first + offset) % count);
        // A bridge all of whose free addresses were just freed waits behind the others.
        let (rested, resting): (Vec<_>, Vec<_>) =
            in_order.partition(|shard| shards[*shard].iter().all(|set| set.has_rested(now)));
        for shard in rested.into_iter().chain(resting) {
            match pick_from(&mut shards[shard], holder) {
                Ok(addresses) => return Ok(Lease { addresses, shard }),
                Err(ranges) => full.push(ranges),
            }
        }
        Err(NetworkError::Exhausted(full.join(", ")))
    }

    /// Writes the files of a lease that was picked. `Some` is an address that has a file of
    /// somebody else's already; then, and after an error, nothing of the lease stays.
    fn write(&self, lease: &Lease, holder: &Holder) -> Result<Option<IpAddr>, NetworkError> {
        for (set, address) in lease.ips().enumerate() {
            // Numbered through all bridges; with one bridge these are host-local's numbers.
            let set = lease.shard * lease.addresses.len() + set;
            let outcome = self.store.reserve(address, holder, set);
            if matches!(outcome, Ok(true)) {
                continue;
            }
            let written = lease.ips().take_while(|before| *before != address);
            let undone = self.cancel(lease, written, holder);
            return match (outcome, undone) {
                (Ok(_), undone) => undone.map(|()| Some(address)),
                (Err(error), undone) => Err(error.after_undo(undone)),
            };
        }
        Ok(None)
    }

    fn adopt_file(&self, address: IpAddr) -> Result<(), NetworkError> {
        // Gone again: the address is free for the next try.
        if let Some(holder) = self.store.read(address)? {
            self.state().adopt(address, holder);
        }
        Ok(())
    }

    /// Takes over files that were written since the start: the reference plugin attached pods
    /// while this process ran. Files of addresses that are known are not read.
    fn look_again(&self) -> Result<(), NetworkError> {
        for address in self.store.addresses()? {
            if self.state().holder_of(address).is_some() {
                continue;
            }
            // An empty file is one that is just being written.
            let holder = self.store.read(address)?;
            let Some(holder) = holder.filter(|holder| *holder != Holder::default()) else {
                continue;
            };
            self.state().adopt(address, holder.clone());
            // Released by somebody in between: who removed the file did not find it here.
            let is_gone = self.store.read(address)?.is_none();
            if is_gone && self.state().holder_of(address) == Some(&holder) {
                self.forget(address);
            }
        }
        Ok(())
    }

    /// The state is a plain value that no panic can leave half-changed, so a poisoned lock is
    /// taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn allocators(&self) -> impl Iterator<Item = &Allocator> {
        self.shards.iter().flatten()
    }

    fn allocators_mut(&mut self) -> impl Iterator<Item = &mut Allocator> {
        self.shards.iter_mut().flatten()
    }

    fn adopt(&mut self, address: IpAddr, holder: Holder) {
        let mut allocators = self.allocators_mut();
        let owner = allocators.find(|one| one.ranges().range_of(address).is_some());
        if let Some(allocator) = owner {
            allocator.adopt(address, holder);
        } else {
            drop(allocators);
            self.strangers.insert(address, holder);
        }
    }

    /// Takes what is asked for, and the next address of each set of which nothing is.
    fn take(&mut self, asked: &[IpAddr], holder: &Holder) -> Result<Lease, NetworkError> {
        let shards = self.shards.iter();
        let ranges = shards.map(|sets| sets.iter().map(Allocator::ranges).collect());
        let Assignment { shard, ips } = requested::assign(asked, &ranges.collect::<Vec<_>>())?;
        let sets = &mut self.shards[shard];
        for (set, ip) in ips.into_iter().enumerate() {
            let ranges = sets[set].ranges().to_string();
            let refusal = match ip {
                Some(ip) if !sets[set].take(ip, holder) => {
                    RequestedError::Taken { set, ip, ranges }.into()
                }
                None if sets[set].reserve(holder).is_none() => NetworkError::Exhausted(ranges),
                _ => continue,
            };
            for before in &mut sets[..set] {
                if let Some(address) = before.find(holder) {
                    before.cancel(address);
                }
            }
            return Err(refusal);
        }
        let addresses = sets.iter().filter_map(|set| leased(set, holder)).collect();
        Ok(Lease { addresses, shard })
    }

    fn cancel(&mut self, address: IpAddr) {
        for allocator in self.allocators_mut() {
            allocator.cancel(address);
        }
    }

    fn lease_of(&self, holder: &Holder) -> Option<Lease> {
        let mut leases = self.shards.iter().enumerate().map(|(shard, sets)| Lease {
            addresses: sets.iter().filter_map(|set| leased(set, holder)).collect(),
            shard,
        });
        leases.find(|lease| !lease.addresses.is_empty())
    }

    fn address_of(&self, holder: &Holder) -> Option<IpAddr> {
        let leased = self.lease_of(holder).and_then(|lease| lease.ips().next());
        let mut strangers = self.strangers.iter();
        let mut stranger = || strangers.find(|(_, other)| *other == holder);
        leased.or_else(|| stranger().map(|(address, _)| *address))
    }

    fn addresses_of(&self, holder: &Holder) -> Vec<IpAddr> {
        let strangers = self.strangers.iter().filter(|(_, other)| *other == holder);
        // All of them: a file of the same holder too many must not outlive it.
        let all = self.allocators().flat_map(Allocator::holders);
        let held = all.filter(|(_, other, _)| *other == holder);
        let held = held.map(|(address, _, _)| address);
        held.chain(strangers.map(|(address, _)| *address)).collect()
    }

    /// Who has the address, in memory.
    fn holder_of(&self, address: IpAddr) -> Option<&Holder> {
        let held = self.allocators().find_map(|one| one.holder_of(address));
        held.or_else(|| self.strangers.get(&address))
    }

    fn addresses_where(&self, matches: impl Fn(&Holder, bool) -> bool) -> Vec<(IpAddr, Holder)> {
        let strangers = self
            .strangers
            .iter()
            .map(|(address, holder)| (*address, holder, true));
        let held = self.allocators().flat_map(Allocator::holders);
        held.chain(strangers)
            .filter(|(_, holder, adopted)| matches(holder, *adopted))
            .map(|(address, holder, _)| (address, holder.clone()))
            .collect()
    }
}

/// Which addresses [`Pool::retain`] looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retain {
    /// Those that were found on disk at start. Those of pods that started since are safe, however
    /// old the list is that one compares with.
    AdoptedOnly,
    /// All.
    All,
}

/// One address of each set of a bridge, or the ranges that are full.
fn pick_from(sets: &mut [Allocator], holder: &Holder) -> Result<Vec<LeasedAddress>, String> {
    for index in 0..sets.len() {
        if sets[index].reserve(holder).is_some() {
            continue;
        }
        for before in &mut sets[..index] {
            if let Some(address) = before.find(holder) {
                before.cancel(address);
            }
        }
        return Err(sets[index].ranges().to_string());
    }
    Ok(sets.iter().filter_map(|set| leased(set, holder)).collect())
}

/// What the holder has of one set.
fn leased(set: &Allocator, holder: &Holder) -> Option<LeasedAddress> {
    let address = set.find(holder)?;
    let range = set.ranges().range_of(address)?;
    Some(LeasedAddress {
        address: IpNet::new(address, range.subnet.prefix_len()).ok()?,
        gateway: range.gateway,
    })
}

#[cfg(test)]
mod tests;
