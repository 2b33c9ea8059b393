//! Ranges that serve as one: a number for each address.

use std::fmt;
use std::net::IpAddr;

use super::range::Range;

/// Ranges of one family, in the order in which they are used. A pod gets one address of each set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

/// Why ranges are no set (host-local's `RangeSet.Canonicalize`).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeSetError {
    /// There is no range.
    #[error("a range set has no range")]
    Empty,
    /// A set gives one address, so it is of one family.
    #[error("ranges {} and {} of one set are of two families", .0.0, .0.1)]
    Mixed(Box<(Range, Range)>),
    /// An address is in two ranges.
    #[error("ranges {} and {} overlap", .0.0, .0.1)]
    Overlap(Box<(Range, Range)>),
}

impl RangeSet {
    /// A set of ranges.
    pub fn new(ranges: Vec<Range>) -> Result<Self, RangeSetError> {
        let first = ranges.first().ok_or(RangeSetError::Empty)?;
        let is_v4 = |range: &Range| range.start.is_ipv4();
        if let Some(other) = ranges.iter().find(|other| is_v4(other) != is_v4(first)) {
            return Err(RangeSetError::Mixed(Box::new((
                first.clone(),
                other.clone(),
            ))));
        }
        for (index, range) in ranges.iter().enumerate() {
            if let Some(other) = ranges[index + 1..].iter().find(|other| meet(range, other)) {
                return Err(RangeSetError::Overlap(Box::new((
                    range.clone(),
                    other.clone(),
                ))));
            }
        }
        Ok(Self(ranges))
    }

    /// Refuses sets that share an address: each has a book of its own, and one file for both.
    pub fn refuse_overlap(&self, other: &Self) -> Result<(), RangeSetError> {
        for mine in &self.0 {
            if let Some(theirs) = other.0.iter().find(|theirs| meet(mine, theirs)) {
                return Err(RangeSetError::Overlap(Box::new((
                    mine.clone(),
                    theirs.clone(),
                ))));
            }
        }
        Ok(())
    }

    /// The ranges.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// How many addresses there are, gateways included.
    pub fn len(&self) -> u128 {
        self.0.iter().map(Range::len).sum()
    }

    /// A set always has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The range of an address.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// The number of an address in the set.
    pub fn position(&self, address: IpAddr) -> Option<u128> {
        let mut before = 0;
        for range in &self.0 {
            if let Some(offset) = range.offset(address) {
                return Some(before + offset);
            }
            before += range.len();
        }
        None
    }

    /// The address with a number.
    pub fn address(&self, position: u128) -> Option<IpAddr> {
        let mut offset = position;
        for range in &self.0 {
            if offset < range.len() {
                return range.at(offset);
            }
            offset -= range.len();
        }
        None
    }
}

fn meet(one: &Range, other: &Range) -> bool {
    one.start <= other.end && other.start <= one.end
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
        let four = [
            range("10.0.0.0/24", "10.0.0.10", "10.0.0.12"),
            range("10.0.1.0/24", "10.0.1.7", "10.0.1.8"),
        ];
        let six = [
            range("fd00::/64", "fd00::a", "fd00::c"),
            range("fd01::/64", "fd01::ffff:ffff", "fd01::1:0:0"),
        ];
        let texts = [
            "10.0.0.10-10.0.0.12,10.0.1.7-10.0.1.8",
            "fd00::a-fd00::c,fd01::ffff:ffff-fd01::1:0:0",
        ];
        for (ranges, text) in [four, six].into_iter().zip(texts) {
            let set = RangeSet::new(ranges.into()).unwrap();
            assert_eq!(set.len(), 5);
            for position in 0..5 {
                let address = set.address(position).unwrap();
                assert_eq!(set.position(address), Some(position));
            }
            assert_eq!(set.address(5), None);
            assert_eq!(set.to_string(), text);
        }
    }

    #[test]
    fn a_set_without_range_of_two_families_or_with_an_address_twice_is_refused() {
        let first = range("10.0.0.0/24", "10.0.0.10", "10.0.0.20");
        let second = range("10.0.0.0/24", "10.0.0.20", "10.0.0.30");
        let six = range("fd00::/64", "fd00::a", "fd00::c");
        assert_eq!(RangeSet::new(Vec::new()), Err(RangeSetError::Empty));
        let overlap = RangeSetError::Overlap(Box::new((first.clone(), second.clone())));
        let both = RangeSet::new(vec![first.clone(), second.clone()]);
        assert_eq!(both.unwrap_err(), overlap);
        let mixed = RangeSetError::Mixed(Box::new((first.clone(), six.clone())));
        assert_eq!(RangeSet::new(vec![first.clone(), six.clone()]), Err(mixed));
        let set = |range| RangeSet::new(vec![range]).unwrap();
        let one = set(first);
        assert_eq!(one.refuse_overlap(&set(second)), Err(overlap));
        assert_eq!(one.refuse_overlap(&set(six)), Ok(()));
    }
}
