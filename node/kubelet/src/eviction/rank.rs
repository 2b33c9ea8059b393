//! Which pod goes first: who takes more than it asked for, then who matters less, then who takes
//! the most beyond what it asked for. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// A pod as the ranking sees it.
#[derive(Clone, Debug)]
pub(super) struct Contender {
    pub(super) pod: Arc<Pod>,
    pub(super) priority: i32,
    /// What it uses of the resource that is short; `None`: it could not be read.
    pub(super) usage: Option<u64>,
    /// What it asked for of it.
    pub(super) request: u64,
}

/// Whether the request counts. Nobody asks for process ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Memory, disk, inodes.
    Request,
    /// Process ids.
    UsageAlone,
}

/// The first is the first to go.
pub(super) fn rank(contenders: &mut [Contender], by: By) {
    contenders.sort_by(|one, other| compare(one, other, by));
}

/// `Less`: `one` goes before `other`.
fn compare(one: &Contender, other: &Contender, by: By) -> Ordering {
    let exceeds = match by {
        By::Request => exceeds(other).cmp(&exceeds(one)),
        By::UsageAlone => Ordering::Equal,
    };
    exceeds
        .then(one.priority.cmp(&other.priority))
        .then_with(|| beyond(other).cmp(&beyond(one)))
}

/// Of a pod that cannot be read the worst is thought.
fn exceeds(one: &Contender) -> (bool, bool) {
    let over = one.usage.is_some_and(|usage| usage > one.request);
    (one.usage.is_none(), over)
}

fn beyond(one: &Contender) -> (bool, i128) {
    let usage = one
        .usage
        .map(|usage| i128::from(usage) - i128::from(one.request));
    (usage.is_none(), usage.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn contender((priority, usage, request): (i32, Option<u64>, u64)) -> Contender {
        Contender {
            pod: Arc::default(),
            priority,
            usage,
            request,
        }
    }

    fn order(all: &[(i32, Option<u64>, u64)], by: By) -> Vec<(i32, Option<u64>, u64)> {
        let mut all: Vec<_> = all.iter().copied().map(contender).collect();
        rank(&mut all, by);
        let back = |one: &Contender| (one.priority, one.usage, one.request);
        all.iter().map(back).collect()
    }

    #[test]
    fn who_takes_more_than_it_asked_for_goes_before_who_matters_less() {
        let modest = (0, Some(10), 20);
        let greedy = (1000, Some(30), 20);
        let greedier = (1000, Some(90), 20);
        let unread = (5000, None, 20);
        assert_eq!(
            order(&[modest, greedy, greedier, unread], By::Request),
            [unread, greedier, greedy, modest]
        );
        assert_eq!(
            order(&[greedier, modest], By::UsageAlone),
            [modest, greedier]
        );
    }

    proptest! {
        #[test]
        fn the_ranking_says_what_the_three_rules_say_one_by_one(
            all in prop::collection::vec(
                (0_i32..3, prop::option::weighted(0.9, 0_u64..50), 0_u64..50), 0..12)
        ) {
            let ranked = order(&all, By::Request);
            for pair in ranked.windows(2) {
                let (one, other) = (pair[0], pair[1]);
                let over = |(_, usage, request): (i32, Option<u64>, u64)| match usage {
                    None => 2,
                    Some(usage) => i32::from(usage > request),
                };
                prop_assert!(over(one) >= over(other));
                if over(one) == over(other) {
                    prop_assert!(one.0 <= other.0);
                    if let ((0, Some(used), asked), (0, Some(used2), asked2)) =
                        ((one.0 - other.0, one.1, one.2), (0, other.1, other.2))
                    {
                        let beyond =
                            |used: u64, asked: u64| used.cast_signed() - asked.cast_signed();
                        prop_assert!(beyond(used, asked) >= beyond(used2, asked2));
                    }
                }
            }
        }
    }
}
