//! Durations as Go writes them: `1h30m`, `20s`, `100ms`.

use std::time::Duration;

/// Units, and their nanoseconds. The longer name of two that begin alike comes first.
const UNITS: [(&str, f64); 7] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 6e10),
    ("h", 3.6e12),
];

/// Reads a duration; `None` if it is none, or negative.
pub(super) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut sum = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number);
        let (unit, nanoseconds) = UNITS.iter().find(|(unit, _)| {
            // "m" is not the beginning of "ms".
            tail.strip_prefix(unit)
                .is_some_and(|tail| !tail.starts_with(|c: char| c.is_alphabetic()))
        })?;
        let number: f64 = number.parse().ok()?;
        sum += Duration::try_from_secs_f64(number * nanoseconds / 1e9).ok()?;
        rest = &tail[unit.len()..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, seconds) in [
            ("0s", 0.0),
            ("0", 0.0),
            ("20s", 20.0),
            ("1m30s", 90.0),
            ("1h0m0s", 3600.0),
            ("100ms", 0.1),
            ("1.5h", 5400.0),
        ] {
            let duration = parse(text).expect(text);
            assert!((duration.as_secs_f64() - seconds).abs() < 1e-9, "{text}");
        }
        for text in ["", "20", "s", "1 s", "-1s", "1d", "1s2"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
