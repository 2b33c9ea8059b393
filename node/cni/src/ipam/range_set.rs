//! Ranges that serve as one: a number for each address, so that a bitmap can hold them.

use std::fmt;
use std::net::Ipv4Addr;

use super::range::Range;

/// Ranges in the order in which they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// A set of ranges; `None` if there is no range or two of them overlap.
    pub fn new(ranges: Vec<Range>) -> Option<Self> {
        let overlap = ranges.iter().enumerate().any(|(index, range)| {
            let after = &ranges[index + 1..];
            after
                .iter()
                .any(|other| range.start <= other.end && other.start <= range.end)
        });
        (!ranges.is_empty() && !overlap).then_some(Self(ranges))
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// How many addresses there are, gateways included.
    pub fn len(&self) -> u32 {
        self.0.iter().map(Range::len).sum()
    }

    /// A set always has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The range of an address.
    pub fn range_of(&self, address: Ipv4Addr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// The number of an address in the set.
    pub fn position(&self, address: Ipv4Addr) -> Option<u32> {
        let mut before = 0;
        for range in &self.0 {
            if range.contains(address) {
                return Some(before + u32::from(address) - u32::from(range.start));
            }
            before += range.len();
        }
        None
    }

    /// The address with a number.
    pub fn address(&self, position: u32) -> Option<Ipv4Addr> {
        let mut offset = position;
        for range in &self.0 {
            if offset < range.len() {
                return Some(Ipv4Addr::from(u32::from(range.start) + offset));
            }
            offset -= range.len();
        }
        None
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{range}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(subnet: &str, start: &str, end: &str) -> Range {
        let ip = |text: &str| Some(text.parse().unwrap());
        Range::new(subnet.parse().unwrap(), ip(start), ip(end), None).unwrap()
    }

    #[test]
    fn every_position_has_one_address_and_back() {
        let first = range("10.0.0.0/24", "10.0.0.10", "10.0.0.12");
        let second = range("10.0.1.0/24", "10.0.1.7", "10.0.1.8");
        let set = RangeSet::new(vec![first, second]).unwrap();
        assert_eq!(set.len(), 5);
        for position in 0..5 {
            let address = set.address(position).unwrap();
            assert_eq!(set.position(address), Some(position));
        }
        assert_eq!(set.address(5), None);
        assert_eq!(set.to_string(), "10.0.0.10-10.0.0.12,10.0.1.7-10.0.1.8");
    }

    #[test]
    fn overlapping_ranges_are_refused() {
        let first = range("10.0.0.0/24", "10.0.0.10", "10.0.0.20");
        let second = range("10.0.0.0/24", "10.0.0.20", "10.0.0.30");
        assert_eq!(RangeSet::new(vec![first, second]), None);
        assert_eq!(RangeSet::new(Vec::new()), None);
    }
}
