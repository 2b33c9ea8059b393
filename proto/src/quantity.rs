//! Exact Kubernetes quantities.
//!
//! A quantity is a fixed-point number with nine decimals and the notation in which it was written.
//! All arithmetic is exact in nanounits; what is finer than a nanounit is rounded away from zero,
//! what is larger than 2^63-1 is cut there, both as `k8s.io/apimachinery/pkg/api/resource` does it.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// Nanounits in one unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Nanounits in one thousandth.
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The largest magnitude, in nanounits: 2^63-1 units (apimachinery's `maxAllowed`).
const NANOS_MAX: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;
/// Digits after which any integer part is beyond 2^63-1.
const INTEGER_DIGITS_MAX: usize = 20;
/// Divisions by ten after which 2^60 * 10^9 has become zero.
const LEADING_ZEROS_MAX: u64 = 30;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12M`.
    DecimalSi,
    /// `12Mi`.
    BinarySi,
    /// `12e6`.
    DecimalExponent,
}

/// An exact quantity. Two quantities are equal when their values are, however they are written.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity, in the words of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text has another shape.
    #[error(
        "quantities must match the regular expression \
         '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The suffix is none of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// Reads a quantity as the API writes it.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let parts = Parts::split(text)?;
        let scale = Scale::of_suffix(parts.suffix).ok_or(QuantityError::Suffix)?;
        let magnitude = parts.magnitude(scale);
        let mut format = scale.format;
        if format == Format::BinarySi && magnitude < NANOS_PER_UNIT {
            // A fraction has no binary notation.
            format = Format::DecimalSi;
        }
        let nanos = if parts.negative {
            -magnitude
        } else {
            magnitude
        };
        Ok(Self { nanos, format })
    }

    /// So many units, in decimal notation.
    pub const fn from_value(value: i64) -> Self {
        Self {
            nanos: value as i128 * NANOS_PER_UNIT,
            format: Format::DecimalSi,
        }
    }

    /// So many thousandths, in decimal notation.
    pub const fn from_milli(milli: i64) -> Self {
        Self {
            nanos: milli as i128 * NANOS_PER_MILLI,
            format: Format::DecimalSi,
        }
    }

    /// So many units, written with Ki, Mi, ….
    pub const fn from_bytes(value: i64) -> Self {
        Self {
            nanos: value as i128 * NANOS_PER_UNIT,
            format: Format::BinarySi,
        }
    }

    /// The value in units, rounded away from zero.
    pub fn value(self) -> i64 {
        round_away(self.nanos, NANOS_PER_UNIT)
    }

    /// The value in thousandths, rounded away from zero, cut at the ends of `i64`.
    pub fn milli_value(self) -> i64 {
        round_away(self.nanos, NANOS_PER_MILLI)
    }

    /// The notation.
    pub fn format(self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    fn combine(self, nanos: i128, other: Self) -> Self {
        // Zero has no notation of its own: the sum is written as the other operand was.
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Self {
            nanos: nanos.clamp(-NANOS_MAX, NANOS_MAX),
            format,
        }
    }
}

impl std::ops::Add for Quantity {
    type Output = Self;

    /// The sum, cut at plus and minus 2^63-1.
    fn add(self, other: Self) -> Self {
        self.combine(self.nanos + other.nanos, other)
    }
}

impl std::ops::Sub for Quantity {
    type Output = Self;

    /// The difference, cut at plus and minus 2^63-1.
    fn sub(self, other: Self) -> Self {
        self.combine(self.nanos - other.nanos, other)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

impl TryFrom<&ApiQuantity> for Quantity {
    type Error = QuantityError;

    fn try_from(quantity: &ApiQuantity) -> Result<Self, QuantityError> {
        Self::parse(&quantity.0)
    }
}

impl From<Quantity> for ApiQuantity {
    fn from(quantity: Quantity) -> Self {
        Self(quantity.to_string())
    }
}

/// Writes the canonical form: no fraction, the largest suffix that loses nothing.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let units = self.nanos / NANOS_PER_UNIT;
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        if self.format == Format::BinarySi && whole && units.abs() >= 1024 {
            return write_binary(f, units);
        }
        write_decimal(f, self.nanos, self.format)
    }
}

fn write_binary(f: &mut fmt::Formatter<'_>, mut units: i128) -> fmt::Result {
    let mut suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
    let mut suffix = suffixes.next().unwrap_or_default();
    while units % 1024 == 0 {
        let Some(next) = suffixes.next() else { break };
        suffix = next;
        units /= 1024;
    }
    write!(f, "{units}{suffix}")
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: i128, format: Format) -> fmt::Result {
    let mut number = nanos;
    let mut exponent = -9;
    while number % 1000 == 0 && exponent < 18 {
        number /= 1000;
        exponent += 3;
    }
    if format == Format::DecimalExponent {
        return match exponent {
            0 => write!(f, "{number}"),
            _ => write!(f, "{number}e{exponent}"),
        };
    }
    let suffix = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => "",
    };
    write!(f, "{number}{suffix}")
}

fn round_away(nanos: i128, unit: i128) -> i64 {
    let quotient = nanos / unit;
    let rounded = if nanos % unit == 0 {
        quotient
    } else {
        quotient + nanos.signum()
    };
    i64::try_from(rounded).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// What a suffix multiplies by: `2^binary * 10^decimal`.
#[derive(Clone, Copy)]
struct Scale {
    binary: u32,
    decimal: i64,
    format: Format,
}

impl Scale {
    fn of_suffix(suffix: &str) -> Option<Self> {
        let decimal = |decimal| {
            Some(Self {
                binary: 0,
                decimal,
                format: Format::DecimalSi,
            })
        };
        let binary = |binary| {
            Some(Self {
                binary,
                decimal: 0,
                format: Format::BinarySi,
            })
        };
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                // A 32-bit exponent, as apimachinery reads it.
                let decimal = exponent.parse::<i32>().ok()?.into();
                Some(Self {
                    binary: 0,
                    decimal,
                    format: Format::DecimalExponent,
                })
            }
        }
    }
}

/// A quantity cut into its parts; `integer` and `fraction` hold digits only.
struct Parts<'a> {
    negative: bool,
    integer: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, QuantityError> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (integer, rest) = take_while(unsigned, |c| c.is_ascii_digit());
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => take_while(rest, |c| c.is_ascii_digit()),
            None => ("", rest),
        };
        if integer.is_empty() && fraction.is_empty() {
            return Err(QuantityError::Format);
        }
        let (_, exponent) = take_while(suffix, |c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.chars().any(|c| !c.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        Ok(Self {
            negative,
            integer,
            fraction,
            suffix,
        })
    }

    /// The absolute value in nanounits, rounded up and cut.
    fn magnitude(&self, scale: Scale) -> i128 {
        let digits: Vec<u8> = self
            .integer
            .bytes()
            .chain(self.fraction.bytes())
            .map(|digit| digit - b'0')
            .collect();
        let zeros = digits.iter().take_while(|&&digit| digit == 0).count();
        let significant = &digits[zeros..];
        if significant.is_empty() {
            return 0;
        }
        // Where the point stands, counted from the first significant digit.
        let point = signed(self.integer.len()) - signed(zeros) + scale.decimal;
        let unit = (1_i128 << scale.binary) * NANOS_PER_UNIT;
        let integer = integer_part(significant, point);
        let Some(whole) = integer.checked_mul(unit) else {
            return NANOS_MAX;
        };
        (whole.saturating_add(fraction_part(significant, point, unit))).min(NANOS_MAX)
    }
}

fn signed(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn take_while(text: &str, keep: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !keep(c)).unwrap_or(text.len());
    text.split_at(end)
}

/// The digits before the point; anything beyond twenty digits is "too large" and stays so.
fn integer_part(digits: &[u8], point: i64) -> i128 {
    let length = usize::try_from(point).unwrap_or(0).min(INTEGER_DIGITS_MAX);
    let at = |index| digits.get(index).copied().unwrap_or(0);
    (0..length).fold(0, |value, index| value * 10 + i128::from(at(index)))
}

/// `unit` times the digits behind the point, rounded up. Horner's rule from the last digit: the
/// floor of a nested division is the division's floor, and `inexact` remembers whether anything was
/// cut.
fn fraction_part(digits: &[u8], point: i64, unit: i128) -> i128 {
    let start = usize::try_from(point).unwrap_or(0).min(digits.len());
    let mut inexact = false;
    let mut value = 0;
    let mut push = |digit: u8| {
        let sum = i128::from(digit) * unit + value;
        inexact |= sum % 10 != 0;
        value = sum / 10;
    };
    digits[start..].iter().rev().copied().for_each(&mut push);
    let leading_zeros = if point < 0 {
        point.unsigned_abs().min(LEADING_ZEROS_MAX)
    } else {
        0
    };
    (0..leading_zeros).for_each(|_| push(0));
    value + i128::from(inexact)
}

#[cfg(test)]
mod tests;
