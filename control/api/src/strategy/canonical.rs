//! Quantities as the API shows them: `0.5` is `500m`, `1024Ki` is `1Mi`.
//!
//! The rules are those of `resource.Quantity` (apimachinery `pkg/api/resource`): no fraction, the
//! largest suffix without loss, at most nine decimal places (rounded away from zero).

use std::cmp::Ordering;

/// What Kubernetes says about a text that is not a quantity.
pub(crate) const NOT_A_QUANTITY: &str = "quantities must match the regular expression \
                                         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// One whole, in nanos: the finest unit of a quantity.
const NANOS: i128 = 1_000_000_000;
/// The largest amount of a quantity, 2^63 - 1 wholes.
const NANOS_MAX: i128 = (i64::MAX as i128) * NANOS;
/// Longest text of a quantity; longer ones are not numbers that anyone means.
const TEXT_BYTES_MAX: usize = 64;

const DECIMAL_SUFFIXES: [(i32, &str); 10] = [
    (-9, "n"),
    (-6, "u"),
    (-3, "m"),
    (0, ""),
    (3, "k"),
    (6, "M"),
    (9, "G"),
    (12, "T"),
    (15, "P"),
    (18, "E"),
];
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Decimal,
    Binary,
    Exponent,
}

/// An exact amount, and how it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Amount {
    nanos: i128,
    format: Format,
}

impl Amount {
    /// Reads a quantity; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let (base, exponent, format) = parse_suffix(suffix)?;
        let nanos = scale(whole, fraction, base, exponent).min(NANOS_MAX);
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            format,
        })
    }

    /// Whether it is below zero.
    pub(crate) fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is a whole number.
    pub(crate) fn is_whole(self) -> bool {
        self.nanos % NANOS == 0
    }

    /// Which of two amounts is greater.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }

    /// Both together, written as the first.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos).min(NANOS_MAX),
            format: self.format,
        }
    }

    /// The canonical text.
    pub(crate) fn canonical(self) -> String {
        let small = self.nanos.abs() < 1024 * NANOS;
        match self.format {
            Format::Binary if !small && self.is_whole() => self.binary(),
            Format::Exponent => self.decimal(true),
            Format::Binary | Format::Decimal => self.decimal(false),
        }
    }

    fn binary(self) -> String {
        let mut number = self.nanos / NANOS;
        let mut power = 0;
        while number % 1024 == 0 && power < BINARY_SUFFIXES.len() {
            number /= 1024;
            power += 1;
        }
        let suffix = if power == 0 {
            ""
        } else {
            BINARY_SUFFIXES[power - 1]
        };
        format!("{number}{suffix}")
    }

    fn decimal(self, as_exponent: bool) -> String {
        if self.nanos == 0 {
            return "0".into();
        }
        let mut number = self.nanos;
        let mut step = 0;
        while number % 1000 == 0 && step + 1 < DECIMAL_SUFFIXES.len() {
            number /= 1000;
            step += 1;
        }
        let (exponent, suffix) = DECIMAL_SUFFIXES[step];
        match (as_exponent, exponent) {
            (true, 0) => number.to_string(),
            (true, _) => format!("{number}e{exponent}"),
            (false, _) => format!("{number}{suffix}"),
        }
    }
}

/// The canonical text of a quantity; `None` if it is not one.
pub(super) fn canonical_quantity(text: &str) -> Option<String> {
    Amount::parse(text.trim()).map(Amount::canonical)
}

/// Base, exponent and format of a suffix.
fn parse_suffix(suffix: &str) -> Option<(u32, i32, Format)> {
    if let Some((exponent, _)) = DECIMAL_SUFFIXES.iter().find(|(_, text)| *text == suffix) {
        return Some((10, *exponent, Format::Decimal));
    }
    if let Some(index) = BINARY_SUFFIXES.iter().position(|text| *text == suffix) {
        return Some((2, 10 * (i32::try_from(index).ok()? + 1), Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    Some((10, exponent.parse().ok()?, Format::Exponent))
}

/// `whole.fraction × base^exponent` in nanos, rounded up, at most `NANOS_MAX`.
fn scale(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    // 64 digits do not fit: leading zeros go first; what is still longer is over the limit anyway.
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let mut places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    if digits.is_empty() {
        return 0;
    }
    let kept = &digits[..digits.len().min(28)];
    places -= i32::try_from(digits.len() - kept.len()).unwrap_or(0);
    let lost = digits[kept.len()..].bytes().any(|digit| digit != b'0');
    let mut value: i128 = kept.parse().unwrap_or(NANOS_MAX);
    let mut decimal = 9 - places;
    if base == 10 {
        decimal = decimal.saturating_add(exponent);
    } else {
        for _ in 0..exponent {
            if value > i128::MAX / 2 {
                // Over the limit, unless decimal places bring it back: precision is gone anyway.
                value /= 1_000_000;
                decimal = decimal.saturating_add(6);
            }
            value *= 2;
        }
    }
    while decimal > 0 {
        if value > NANOS_MAX {
            return NANOS_MAX;
        }
        value *= 10;
        decimal -= 1;
    }
    let mut rest = lost;
    while decimal < 0 && value > 0 {
        rest |= value % 10 != 0;
        value /= 10;
        decimal += 1;
    }
    (value + i128::from(rest)).min(NANOS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        let cases = [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1", "1"),
            ("100m", "100m"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("64Mi", "64Mi"),
            ("1000Ki", "1000Ki"),
            ("512", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("9E", "9E"),
            ("12E", "9223372036854775807"),
            ("0.1Ki", "102400m"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-1500m", "-1500m"),
            ("+3k", "3k"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("1000000", "1M"),
            ("123456789123456789123456789", "9223372036854775807"),
        ];
        for (text, want) in cases {
            assert_eq!(canonical_quantity(text).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        for text in [
            "", "1x", "Mi", "1.2.3", "--1", "1 Gi", "e3", "1ki", "1KI", "0x10", "1e", "é",
        ] {
            assert_eq!(canonical_quantity(text), None, "{text}");
        }
    }

    #[test]
    fn a_canonical_quantity_is_its_own_canonical_form() {
        for text in ["500m", "1536Mi", "1e3", "7k", "1n", "3Ei", "102400m"] {
            assert_eq!(canonical_quantity(text).as_deref(), Some(text));
        }
    }
}
