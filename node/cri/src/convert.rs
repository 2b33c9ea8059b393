//! The model's words to CRI's and back. Pure.

pub(crate) mod container;
pub(crate) mod sandbox;
mod security;
pub(crate) mod status;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use k8s_cri::v1::Int64Value;

/// CRI's maps have no order; the model's do.
fn map(from: &BTreeMap<String, String>) -> HashMap<String, String> {
    from.iter()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn int64(value: Option<i64>) -> Option<Int64Value> {
    value.map(|value| Int64Value { value })
}

/// CRI counts grace periods in whole seconds; a part of one is given in full, so that nothing is
/// killed early.
pub(crate) fn whole_seconds(grace: Duration) -> i64 {
    let seconds = grace
        .as_secs()
        .saturating_add(u64::from(grace.subsec_nanos() > 0));
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

/// CRI's nanoseconds since 1970. An `i64` of them always fits a [`Timestamp`].
pub(crate) fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Zero is CRI's word for "not yet".
fn timestamp_if_set(nanoseconds: i64) -> Option<Timestamp> {
    (nanoseconds > 0).then(|| timestamp(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_period_is_never_shortened() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(30)), 30);
        assert_eq!(whole_seconds(Duration::MAX), i64::MAX);
    }

    #[test]
    fn times_keep_their_nanoseconds() {
        let time = timestamp(1_700_000_000_123_456_789);
        assert_eq!(time.as_nanosecond(), 1_700_000_000_123_456_789);
        assert_eq!(timestamp_if_set(0), None);
    }
}
