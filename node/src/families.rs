//! Options that have a value for IPv4, one for IPv6, or both.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// One value, or one of each family, the preferred family first: `10.244.0.0/24,fd00::/64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PerFamily<T>(Vec<T>);

/// What belongs to a family of addresses.
pub(crate) trait OfFamily: FromStr {
    /// What it is, for the error.
    const WHAT: &'static str;

    /// IPv4, and not IPv6?
    fn is_ipv4(&self) -> bool;
}

/// Why a list is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FamilyError {
    /// A part of the list cannot be read.
    #[error("{0:?} is no {1}")]
    NoValue(String, &'static str),
    /// More than one of a family.
    #[error("{0:?} has two of one family: one of IPv4, of IPv6 or of each is served")]
    Twice(String),
}

impl OfFamily for IpNet {
    const WHAT: &'static str = "range of addresses";

    fn is_ipv4(&self) -> bool {
        self.addr().is_ipv4()
    }
}

impl OfFamily for IpAddr {
    const WHAT: &'static str = "address";

    fn is_ipv4(&self) -> bool {
        IpAddr::is_ipv4(self)
    }
}

impl<T: OfFamily> FromStr for PerFamily<T> {
    type Err = FamilyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut values: Vec<T> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let value: Result<T, _> = part.parse();
            let value = value.map_err(|_| FamilyError::NoValue(part.to_owned(), T::WHAT))?;
            if values.iter().any(|one| one.is_ipv4() == value.is_ipv4()) {
                return Err(FamilyError::Twice(text.to_owned()));
            }
            values.push(value);
        }
        Ok(Self(values))
    }
}

impl<T> PerFamily<T> {
    /// The values, the preferred one first.
    pub(crate) fn values(&self) -> &[T] {
        &self.0
    }
}

impl<T: fmt::Display> fmt::Display for PerFamily<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, value) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_of_each_family_is_taken_in_the_order_given() {
        for text in ["10.1.0.0/24", "fd00::/64", "fd00::/64,10.1.0.0/24"] {
            let list: PerFamily<IpNet> = text.parse().expect("a list");
            assert_eq!(list.to_string(), text);
        }
        let list: PerFamily<IpAddr> = "10.1.0.1, fd00::1".parse().expect("a list");
        assert_eq!(list.to_string(), "10.1.0.1,fd00::1");
    }

    #[test]
    fn two_of_a_family_and_what_is_no_range_are_refused_by_name() {
        let error = |text: &str| text.parse::<PerFamily<IpNet>>().expect_err("refused");
        for twice in ["10.1.0.0/24,10.2.0.0/24", "fd00::/64,10.1.0.0/24,fd01::/64"] {
            assert_eq!(error(twice), FamilyError::Twice(twice.to_owned()));
        }
        let wrong = error("10.1.0.0/24,");
        assert_eq!(wrong.to_string(), "\"\" is no range of addresses");
        assert_eq!(
            error("pods").to_string(),
            "\"pods\" is no range of addresses"
        );
    }
}
