//! A set of numbers as runs without a gap: what a bitmap is, for spaces of any size.
//!
//! A subnet of IPv6 has 2^64 addresses and a node some hundreds of them, next to each other
//! because they are handed out in turn: so a few runs say it all, and each question is answered
//! in the logarithm of their number.

use std::collections::BTreeMap;

/// Numbers below a limit; the end of each run by its start, both inclusive. Two runs never touch.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<u128, u128>);

impl Runs {
    pub(super) fn insert(&mut self, number: u128) {
        if self.run_of(number).is_some() {
            return;
        }
        let before = number.checked_sub(1).and_then(|last| self.run_of(last));
        let start = before.map_or(number, |(start, _)| start);
        let after = number.checked_add(1).and_then(|next| self.0.remove(&next));
        self.0.insert(start, after.unwrap_or(number));
    }

    pub(super) fn remove(&mut self, number: u128) {
        let Some((start, end)) = self.run_of(number) else {
            return;
        };
        self.0.remove(&start);
        if start < number {
            self.0.insert(start, number - 1);
        }
        if number < end {
            self.0.insert(number + 1, end);
        }
    }

    /// The first number that is not in the set, from `from` on and below `limit`.
    pub(super) fn first_missing(&self, from: u128, limit: u128) -> Option<u128> {
        let candidate = match self.run_of(from) {
            Some((_, end)) => end.checked_add(1)?,
            None => from,
        };
        (candidate < limit).then_some(candidate)
    }

    fn run_of(&self, number: u128) -> Option<(u128, u128)> {
        let (start, end) = self.0.range(..=number).next_back()?;
        (number <= *end).then_some((*start, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_the_set_of_their_numbers(
            steps in prop::collection::vec((0..40_u128, any::<bool>()), 0..200),
            high in any::<bool>(),
        ) {
            // At both ends of the numbers, where one more or one less does not exist.
            let base = if high { u128::MAX - 39 } else { 0 };
            let (mut runs, mut set) = (Runs::default(), BTreeSet::new());
            for (number, insert) in steps {
                let number = base + number;
                if insert {
                    runs.insert(number);
                    set.insert(number);
                } else {
                    runs.remove(number);
                    set.remove(&number);
                }
                let found: BTreeSet<_> =
                    runs.0.iter().flat_map(|(start, end)| *start..=*end).collect();
                prop_assert_eq!(&found, &set);
                let ends: Vec<_> = runs.0.iter().collect();
                prop_assert!(ends.windows(2).all(|two| *two[0].1 + 1 < *two[1].0));
                let limit = base + 39;
                for from in base..limit {
                    let missing = (from..limit).find(|number| !set.contains(number));
                    prop_assert_eq!(runs.first_missing(from, limit), missing);
                }
            }
        }
    }
}
