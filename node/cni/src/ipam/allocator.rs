//! Which address is next: one that nobody had yet, then the one that was freed longest ago.
//!
//! Pure: the clock is an argument, files are elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::range_set::RangeSet;
use super::runs::Runs;

/// How long a freed address rests, so that late packets and cached names of the pod before do not
/// reach the next one. Longer than a TCP retransmission or two; not so long that a busy node
/// would run out. Ignored when no bridge has anything else.
pub const COOL_DOWN: Duration = Duration::from_secs(30);

/// Freed addresses whose order is remembered: all of a /16. In a larger range (IPv6) the search is
/// back at a forgotten one after 2^64 pods.
const RESTING_MAX: usize = 1 << 16;

/// Who holds an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holder {
    /// The sandbox.
    pub container_id: String,
    /// The interface inside it.
    pub ifname: String,
}

/// One address that is held.
#[derive(Debug)]
struct Held {
    holder: Holder,
    /// Found on disk, not reserved by this process.
    adopted: bool,
}

/// The addresses of one range set.
#[derive(Debug)]
pub struct Allocator {
    ranges: RangeSet,
    /// What must not be picked: held, resting or excluded.
    taken: Runs,
    held: BTreeMap<u128, Held>,
    by_holder: HashMap<Holder, u128>,
    /// Freed addresses, the one that was freed first in front.
    resting: VecDeque<(u128, Instant)>,
    /// Never handed out: gateways, and what an adopted bridge has.
    excluded: BTreeSet<u128>,
    /// Where the search goes on.
    next: u128,
}

impl Allocator {
    /// An allocator in which all addresses but the gateways are free.
    pub fn new(ranges: RangeSet) -> Self {
        let mut allocator = Self {
            taken: Runs::default(),
            held: BTreeMap::new(),
            by_holder: HashMap::new(),
            resting: VecDeque::new(),
            excluded: BTreeSet::new(),
            next: 0,
            ranges,
        };
        let gateways: Vec<_> = allocator
            .ranges
            .ranges()
            .iter()
            .map(|range| range.gateway)
            .collect();
        for gateway in gateways {
            allocator.exclude(gateway);
        }
        allocator
    }

    /// The ranges that addresses come from.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Whether there is an address that nobody had within [`COOL_DOWN`].
    pub fn has_rested(&self, now: Instant) -> bool {
        let rested = |(_, since): &(u128, Instant)| now >= *since + COOL_DOWN;
        self.first_free().is_some() || self.resting.front().is_some_and(rested)
    }

    /// Reserves the next address after the last one that nobody had, or else the one that was freed
    /// longest ago; `None` if all are held.
    pub fn reserve(&mut self, holder: &Holder) -> Option<IpAddr> {
        let position = match self.first_free() {
            Some(position) => position,
            None => self.wake()?,
        };
        self.hold(position, holder.clone(), false);
        self.next = position + 1;
        self.ranges.address(position)
    }

    /// Reserves this address; `false` if it is held, or never handed out. One that rests serves:
    /// whoever asks for it by name wants it back.
    pub fn take(&mut self, address: IpAddr, holder: &Holder) -> bool {
        let free = |position: &u128| {
            !self.held.contains_key(position) && !self.excluded.contains(position)
        };
        let Some(position) = self.ranges.position(address).filter(free) else {
            return false;
        };
        self.resting.retain(|(resting, _)| *resting != position);
        self.hold(position, holder.clone(), false);
        self.next = position + 1;
        true
    }

    /// Takes over an address from disk. One outside of the ranges is somebody else's.
    pub fn adopt(&mut self, address: IpAddr, holder: Holder) {
        let Some(position) = self.ranges.position(address) else {
            return;
        };
        if !self.held.contains_key(&position) {
            self.resting.retain(|(resting, _)| *resting != position);
            self.hold(position, holder, true);
        } else if let Some(held) = self.held.get_mut(&position) {
            // A reservation in flight that lost against a file on disk.
            self.by_holder.remove(&held.holder);
            self.by_holder.insert(holder.clone(), position);
            *held = Held {
                holder,
                adopted: true,
            };
        }
    }

    /// The search goes on behind this address.
    pub fn continue_after(&mut self, address: IpAddr) {
        if let Some(position) = self.ranges.position(address) {
            self.next = position + 1;
        }
    }

    /// Frees an address; one that is not held stays as it is.
    pub fn release(&mut self, address: IpAddr, now: Instant) {
        let position = self.ranges.position(address);
        let held = position.and_then(|position| self.held.remove_entry(&position));
        if let Some((position, held)) = held {
            // A holder may have been found on disk with two addresses.
            if self.by_holder.get(&held.holder) == Some(&position) {
                self.by_holder.remove(&held.holder);
            }
            // Still marked as taken: it rests.
            if !self.excluded.contains(&position) {
                self.resting.push_back((position, now));
            }
            if self.resting.len() > RESTING_MAX {
                self.wake();
            }
        }
    }

    /// Takes a reservation back that nobody has seen: the address is free at once.
    pub fn cancel(&mut self, address: IpAddr) {
        let position = self.ranges.position(address);
        let held = position.and_then(|position| self.held.remove_entry(&position));
        if let Some((position, held)) = held {
            self.by_holder.remove(&held.holder);
            if !self.excluded.contains(&position) {
                self.taken.remove(position);
            }
        }
    }

    /// Never hands out this address.
    pub fn exclude(&mut self, address: IpAddr) {
        if let Some(position) = self.ranges.position(address) {
            self.resting.retain(|(resting, _)| *resting != position);
            self.excluded.insert(position);
            self.taken.insert(position);
        }
    }

    /// The address that is held.
    pub fn find(&self, holder: &Holder) -> Option<IpAddr> {
        self.by_holder
            .get(holder)
            .and_then(|position| self.ranges.address(*position))
    }

    /// Who holds the address.
    pub fn holder_of(&self, address: IpAddr) -> Option<&Holder> {
        let position = self.ranges.position(address)?;
        self.held.get(&position).map(|held| &held.holder)
    }

    /// All held addresses, and whether they were found on disk.
    pub fn holders(&self) -> impl Iterator<Item = (IpAddr, &Holder, bool)> {
        self.held.iter().filter_map(|(position, held)| {
            Some((self.ranges.address(*position)?, &held.holder, held.adopted))
        })
    }

    fn hold(&mut self, position: u128, holder: Holder, adopted: bool) {
        self.taken.insert(position);
        self.by_holder.insert(holder.clone(), position);
        self.held.insert(position, Held { holder, adopted });
    }

    /// Ends the rest of the address that has rested longest.
    fn wake(&mut self) -> Option<u128> {
        let (position, _) = self.resting.pop_front()?;
        self.taken.remove(position);
        Some(position)
    }

    /// The first free address from `next` on, around the end.
    fn first_free(&self) -> Option<u128> {
        let length = self.ranges.len();
        let ahead = self.taken.first_missing(self.next, length);
        ahead.or_else(|| self.taken.first_missing(0, length))
    }
}

#[cfg(test)]
mod tests;
