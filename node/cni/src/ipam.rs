//! Addresses of pods: host-local's ranges and files, with the decision in memory.
//!
//! [`range`] and [`range_set`] say which addresses there are, [`allocator`] decides (pure),
//! [`store`] keeps host-local's files. [`Pool`] puts them together for one network.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ipnet::Ipv4Net;

use crate::error::NetworkError;

pub mod allocator;
pub mod range;
pub mod range_set;
pub mod store;

use allocator::{Allocator, Holder};
use range_set::RangeSet;
use store::Store;

/// An address that a pod's interface holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address with its subnet's prefix length.
    pub address: Ipv4Net,
    /// The subnet's gateway.
    pub gateway: Ipv4Addr,
    /// Which range set (and so which bridge) it is from.
    pub shard: usize,
}

/// The addresses of one network.
#[derive(Debug)]
pub(crate) struct Pool {
    /// A mutex and no owner task: the callers are threads, the decision takes a microsecond, and
    /// files are written outside of it.
    state: Mutex<State>,
    store: Store,
}

#[derive(Debug)]
struct State {
    /// One per bridge.
    shards: Vec<Allocator>,
    /// Addresses on disk that are outside of the ranges: from a conf of before. They are freed by
    /// DEL like all others.
    strangers: BTreeMap<Ipv4Addr, Holder>,
}

impl Pool {
    /// Opens the network's folder and takes over what is written there.
    ///
    /// Addresses from before the last boot are dropped: no pod of that time lives.
    pub(crate) fn open(dir: &Path, sets: Vec<RangeSet>) -> Result<Self, NetworkError> {
        let store = Store::open(dir)?;
        let shards = sets.into_iter().map(Allocator::new).collect();
        let mut state = State {
            shards,
            strangers: BTreeMap::new(),
        };
        for (address, holder) in store.load()? {
            state.adopt(address, holder);
        }
        for (index, shard) in state.shards.iter_mut().enumerate() {
            if let Some(address) = store.last_reserved(index)? {
                shard.continue_after(address);
            }
        }
        Ok(Self {
            state: Mutex::new(state),
            store,
        })
    }

    /// Reserves an address; its file is there when this returns. `first` is the preferred shard,
    /// the others are tried when it is full.
    pub(crate) fn reserve(&self, holder: &Holder, first: usize) -> Result<Lease, NetworkError> {
        if let Some(lease) = self.find(holder) {
            return Err(NetworkError::AlreadyAttached {
                container_id: holder.container_id.clone(),
                address: lease.address.addr(),
            });
        }
        loop {
            let lease = self.pick(holder, first)?;
            match self
                .store
                .reserve(lease.address.addr(), holder, lease.shard)
            {
                Ok(true) => return Ok(lease),
                // A file that we know nothing of: the reference plugin is at work in the same
                // folder. Its holder has the address; take the next one.
                Ok(false) => self.adopt_file(lease.address.addr())?,
                Err(error) => {
                    self.forget(lease.address.addr());
                    return Err(error);
                }
            }
        }
    }

    /// The lease that the holder has.
    pub(crate) fn find(&self, holder: &Holder) -> Option<Lease> {
        let state = self.state();
        state
            .shards
            .iter()
            .enumerate()
            .find_map(|(shard, allocator)| {
                allocator
                    .find(holder)
                    .map(|address| lease(allocator, address, shard))
            })
    }

    /// Frees what the container's interface holds. `Ok(false)` if that is nothing.
    pub(crate) fn release(&self, holder: &Holder) -> Result<bool, NetworkError> {
        let addresses = self.state().addresses_of(holder);
        let any = !addresses.is_empty();
        self.release_all(addresses)?;
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

    /// The containers that hold an address.
    pub(crate) fn containers(&self) -> Vec<String> {
        let state = self.state();
        let held = state.shards.iter().flat_map(Allocator::holders);
        let held = held.map(|(_, holder, _)| holder);
        let all = held.chain(state.strangers.values());
        all.map(|holder| holder.container_id.clone()).collect()
    }

    /// Keeps an address that something else uses (an adopted bridge) from ever being handed out.
    pub(crate) fn exclude(&self, address: Ipv4Addr) {
        for shard in &mut self.state().shards {
            shard.exclude(address);
        }
    }

    /// Removes the files, if no address is held any more.
    pub(crate) fn remove_if_unused(&self) -> Result<(), NetworkError> {
        let used = !self.state().addresses_where(|_, _| true).is_empty();
        if used { Ok(()) } else { self.store.remove() }
    }

    fn pick(&self, holder: &Holder, first: usize) -> Result<Lease, NetworkError> {
        let shards = &mut self.state().shards;
        let count = shards.len();
        let now = Instant::now();
        for shard in (0..count).map(|offset| (first + offset) % count) {
            if let Some(address) = shards[shard].reserve(holder, now) {
                return Ok(lease(&shards[shard], address, shard));
            }
        }
        let ranges: Vec<_> = shards
            .iter()
            .map(|shard| shard.ranges().to_string())
            .collect();
        Err(NetworkError::Exhausted(ranges.join(", ")))
    }

    fn adopt_file(&self, address: Ipv4Addr) -> Result<(), NetworkError> {
        let holder = self.store.read(address)?.unwrap_or_default();
        self.state().adopt(address, holder);
        Ok(())
    }

    fn release_all(&self, addresses: Vec<Ipv4Addr>) -> Result<(), NetworkError> {
        let mut errors = Vec::new();
        for address in addresses {
            // The file goes first: an address is free for others only when nothing says that it
            // is taken. A file that stays keeps its address.
            match self.store.release(address) {
                Ok(()) => self.forget(address),
                Err(error) => errors.push(error),
            }
        }
        NetworkError::collected(errors)
    }

    fn forget(&self, address: Ipv4Addr) {
        let now = Instant::now();
        let mut state = self.state();
        state.strangers.remove(&address);
        for shard in &mut state.shards {
            shard.release(address, now);
        }
    }

    /// The state is a plain value that no panic can leave half-changed, so a poisoned lock is
    /// taken as it is.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn adopt(&mut self, address: Ipv4Addr, holder: Holder) {
        let shard = self
            .shards
            .iter_mut()
            .find(|shard| shard.ranges().range_of(address).is_some());
        match shard {
            Some(shard) => shard.adopt(address, holder),
            None => drop(self.strangers.insert(address, holder)),
        }
    }

    fn addresses_of(&self, holder: &Holder) -> Vec<Ipv4Addr> {
        let strangers = self.strangers.iter().filter(|(_, other)| *other == holder);
        let held = self.shards.iter().filter_map(|shard| shard.find(holder));
        held.chain(strangers.map(|(address, _)| *address)).collect()
    }

    fn addresses_where(&self, matches: impl Fn(&Holder, bool) -> bool) -> Vec<Ipv4Addr> {
        let strangers = self
            .strangers
            .iter()
            .map(|(address, holder)| (*address, holder, true));
        let held = self.shards.iter().flat_map(Allocator::holders);
        held.chain(strangers)
            .filter(|(_, holder, adopted)| matches(holder, *adopted))
            .map(|(address, _, _)| address)
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

fn lease(allocator: &Allocator, address: Ipv4Addr, shard: usize) -> Lease {
    let range = allocator
        .ranges()
        .range_of(address)
        .expect("an allocator hands out its own");
    let address = Ipv4Net::new(address, range.subnet.prefix_len())
        .expect("a prefix length of a subnet is one of an address");
    Lease {
        address,
        gateway: range.gateway,
        shard,
    }
}
