//! Sets of CPUs, and how they lie in cores and sockets.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu {
    /// Its number.
    pub id: u32,
    /// Its core, by a number that is unique on the machine.
    pub core: u32,
    /// Its socket.
    pub socket: u32,
}

/// Logical CPUs by their numbers; its text is the kernel's, `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(pub BTreeSet<u32>);

impl CpuSet {
    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All of both.
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// What is not in the other.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut first = true;
        while let Some(start) = rest.next() {
            let mut end = start;
            while let Some(next) = rest.next_if_eq(&(end + 1)) {
                end = next;
            }
            let comma = if first { "" } else { "," };
            first = false;
            if start == end {
                write!(f, "{comma}{start}")?;
            } else {
                write!(f, "{comma}{start}-{end}")?;
            }
        }
        Ok(())
    }
}

/// A text that names no CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no list of CPUs")]
pub struct CpuSetError(String);

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let wrong = || CpuSetError(text.to_owned());
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let mut all = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            match part.split_once('-') {
                Some((start, end)) => {
                    let (start, end) = (number(start)?, number(end)?);
                    if end < start {
                        return Err(wrong());
                    }
                    all.extend(start..=end);
                }
                None => {
                    all.insert(number(part)?);
                }
            }
        }
        Ok(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_set_is_written_as_the_kernel_writes_it() {
        let set: CpuSet = "0-2,7,9-10".parse().unwrap();
        assert_eq!((set.len(), set.to_string().as_str()), (6, "0-2,7,9-10"));
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::default());
        for wrong in ["x", "3-1", "1-"] {
            assert!(wrong.parse::<CpuSet>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(all in prop::collection::btree_set(0_u32..64, 0..20)) {
            let set = CpuSet(all);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }
    }
}
