//! Which address is next: a bitmap, round robin, and a pause before an address is used again.
//!
//! Pure: the clock is an argument, files are elsewhere.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use super::range_set::RangeSet;

/// How long a freed address rests, so that late packets and cached names of the pod before do not
/// reach the next one. Longer than a TCP retransmission or two; not so long that a busy node
/// would run out. Ignored when nothing else is free.
pub const COOL_DOWN: Duration = Duration::from_secs(30);

const WORD_BITS: u32 = u64::BITS;

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
    /// One bit per address that must not be picked: held, resting or excluded.
    taken: Vec<u64>,
    held: BTreeMap<u32, Held>,
    by_holder: HashMap<Holder, u32>,
    /// Freed addresses, the one that was freed first in front.
    resting: VecDeque<(u32, Instant)>,
    /// Never handed out: gateways, and what an adopted bridge has.
    excluded: BTreeSet<u32>,
    /// Where the search goes on.
    next: u32,
}

impl Allocator {
    /// An allocator in which all addresses but the gateways are free.
    pub fn new(ranges: RangeSet) -> Self {
        let words = ranges.len().div_ceil(WORD_BITS);
        let mut allocator = Self {
            taken: vec![0; usize::try_from(words).unwrap_or(usize::MAX)],
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
        // Bits behind the last address are never free.
        for position in allocator.ranges.len()..words * WORD_BITS {
            allocator.set_taken(position, true);
        }
        allocator
    }

    /// The ranges that addresses come from.
    pub fn ranges(&self) -> &RangeSet {
        &self.ranges
    }

    /// Reserves the next free address after the last one; `None` if all are held.
    pub fn reserve(&mut self, holder: &Holder, now: Instant) -> Option<Ipv4Addr> {
        while self
            .resting
            .front()
            .is_some_and(|(_, since)| now >= *since + COOL_DOWN)
        {
            self.wake();
        }
        let position = match self.first_free() {
            Some(position) => position,
            None => self.wake()?,
        };
        self.hold(position, holder.clone(), false);
        self.next = position + 1;
        self.ranges.address(position)
    }

    /// Takes over an address from disk. One outside of the ranges is somebody else's.
    pub fn adopt(&mut self, address: Ipv4Addr, holder: Holder) {
        if let Some(position) = self.ranges.position(address)
            && !self.held.contains_key(&position)
        {
            self.resting.retain(|(resting, _)| *resting != position);
            self.hold(position, holder, true);
        } else if let Some(held) = self
            .ranges
            .position(address)
            .and_then(|position| self.held.get_mut(&position))
        {
            // A reservation in flight that lost against a file on disk.
            self.by_holder.remove(&held.holder);
            *held = Held {
                holder,
                adopted: true,
            };
        }
    }

    /// The search goes on behind this address.
    pub fn continue_after(&mut self, address: Ipv4Addr) {
        if let Some(position) = self.ranges.position(address) {
            self.next = position + 1;
        }
    }

    /// Frees an address; one that is not held stays as it is.
    pub fn release(&mut self, address: Ipv4Addr, now: Instant) {
        let position = self.ranges.position(address);
        let held = position.and_then(|position| self.held.remove_entry(&position));
        if let Some((position, held)) = held {
            self.by_holder.remove(&held.holder);
            // Still marked as taken: it rests.
            if !self.excluded.contains(&position) {
                self.resting.push_back((position, now));
            }
        }
    }

    /// Never hands out this address.
    pub fn exclude(&mut self, address: Ipv4Addr) {
        if let Some(position) = self.ranges.position(address) {
            self.resting.retain(|(resting, _)| *resting != position);
            self.excluded.insert(position);
            self.set_taken(position, true);
        }
    }

    /// The address that is held.
    pub fn find(&self, holder: &Holder) -> Option<Ipv4Addr> {
        self.by_holder
            .get(holder)
            .and_then(|position| self.ranges.address(*position))
    }

    /// All held addresses, and whether they were found on disk.
    pub fn holders(&self) -> impl Iterator<Item = (Ipv4Addr, &Holder, bool)> {
        self.held.iter().filter_map(|(position, held)| {
            Some((self.ranges.address(*position)?, &held.holder, held.adopted))
        })
    }

    fn hold(&mut self, position: u32, holder: Holder, adopted: bool) {
        self.set_taken(position, true);
        self.by_holder.insert(holder.clone(), position);
        self.held.insert(position, Held { holder, adopted });
    }

    /// Ends the rest of the address that has rested longest.
    fn wake(&mut self) -> Option<u32> {
        let (position, _) = self.resting.pop_front()?;
        self.set_taken(position, false);
        Some(position)
    }

    /// The first free address from `next` on, around the end.
    fn first_free(&self) -> Option<u32> {
        let start = if self.next < self.ranges.len() {
            self.next
        } else {
            0
        };
        let words = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        // The first word is looked at twice: its upper part first, its lower part last.
        (0..=words).find_map(|step| {
            let word = (start / WORD_BITS + step) % words;
            let bits = self.taken[usize::try_from(word).unwrap_or(0)];
            let upper = u64::MAX << (start % WORD_BITS);
            let mask = match step {
                0 => upper,
                step if step == words => !upper,
                _ => u64::MAX,
            };
            let free = !bits & mask;
            (free != 0).then(|| word * WORD_BITS + free.trailing_zeros())
        })
    }

    fn set_taken(&mut self, position: u32, taken: bool) {
        let bit = 1 << (position % WORD_BITS);
        let word = usize::try_from(position / WORD_BITS).unwrap_or(usize::MAX);
        if let Some(word) = self.taken.get_mut(word) {
            *word = if taken { *word | bit } else { *word & !bit };
        }
    }
}

#[cfg(test)]
mod tests;
