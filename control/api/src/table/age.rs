//! Durations as people read them.

use jiff::Timestamp;
use serde_json::Value;

use crate::strategy::text_at;

/// Seconds by which a clock may be ahead of ours before an age makes no sense.
const CLOCK_SKEW_S: i64 = 1;
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;
const YEAR_S: i64 = 365 * DAY_S;

/// A duration in at most two units, the finer one only where it matters (apimachinery
/// `pkg/util/duration`): `119s`, `3m10s`, `2h`, `3d4h`.
pub fn human_duration(seconds: i64) -> String {
    let two = |big: i64, big_unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{big_unit}")
        } else {
            format!("{big}{big_unit}{small}{small_unit}")
        }
    };
    match seconds {
        _ if seconds < -CLOCK_SKEW_S => "<invalid>".into(),
        _ if seconds < 0 => "0s".into(),
        _ if seconds < 2 * MINUTE_S => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE_S => two(seconds / MINUTE_S, "m", seconds % MINUTE_S, "s"),
        _ if seconds < 3 * HOUR_S => format!("{}m", seconds / MINUTE_S),
        _ if seconds < 8 * HOUR_S => two(seconds / HOUR_S, "h", seconds % HOUR_S / MINUTE_S, "m"),
        _ if seconds < 2 * DAY_S => format!("{}h", seconds / HOUR_S),
        _ if seconds < 8 * DAY_S => two(seconds / DAY_S, "d", seconds % DAY_S / HOUR_S, "h"),
        _ if seconds < 2 * YEAR_S => format!("{}d", seconds / DAY_S),
        _ if seconds < 8 * YEAR_S => two(seconds / YEAR_S, "y", seconds % YEAR_S / DAY_S, "d"),
        _ => format!("{}y", seconds / YEAR_S),
    }
}

/// The time since the timestamp at a pointer.
pub(super) fn age_at(object: &Value, pointer: &str, now: Timestamp) -> String {
    match text_at(object, pointer).parse::<Timestamp>() {
        Ok(then) => since(then, now),
        Err(_) => "<unknown>".into(),
    }
}

/// The time from `then` to `now`.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    human_duration(now.duration_since(then).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        let cases = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (15_000, "4h10m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (273_600, "3d4h"),
            (691_200, "8d"),
            (63_071_999, "729d"),
            (63_072_000, "2y"),
            (63_072_000 + 86_400, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (seconds, want) in cases {
            assert_eq!(human_duration(seconds), want, "{seconds}");
        }
    }
}
