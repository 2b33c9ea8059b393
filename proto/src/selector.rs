//! Label and field selectors, from query strings and from objects.

mod field;
mod label;
mod lexer;
mod node;
mod validate;

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;

pub use field::{FieldOperator, FieldRequirement, parse_field_selector};
pub use node::selects_node;
pub use validate::{validate_label_key, validate_label_value};

/// Requirements on labels, all of which must hold. The default requires nothing and selects
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    nothing: bool,
    requirements: Vec<Requirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must be true of its value.
    pub operator: Operator,
}

/// What must be true of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label exists and has one of these values.
    In(Vec<String>),
    /// The label is missing or has none of these values.
    NotIn(Vec<String>),
    /// `key=value`.
    Equals(String),
    /// `key!=value`: missing, or another value.
    NotEquals(String),
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer greater than this one.
    GreaterThan(i64),
    /// The label is an integer less than this one.
    LessThan(i64),
}

/// Why a selector cannot be used, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A label selector string does not follow the grammar.
    #[error("{0}")]
    Syntax(String),
    /// A requirement of a label selector string is not valid.
    #[error("unable to parse requirement: {0}")]
    Requirement(String),
    /// A selector object has an operator that does not exist.
    #[error("\"{0}\" is not a valid label selector operator")]
    Operator(String),
    /// A selector object's requirement is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A field selector's term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    FieldTerm {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A field selector's value has an escape that does not exist.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    FieldEscape(String),
}

impl LabelSelector {
    /// Matches every object.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Matches no object.
    pub fn nothing() -> Self {
        Self {
            nothing: true,
            requirements: Vec::new(),
        }
    }

    /// Reads `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1,j<2`; empty selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        label::parse(text).map(Self::of)
    }

    /// A selector object; as in Kubernetes `None` matches nothing and an empty one everything.
    pub fn from_object(selector: Option<&ApiSelector>) -> Result<Self, SelectorError> {
        let Some(selector) = selector else {
            return Ok(Self::nothing());
        };
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            let operator = Operator::Equals(value.clone());
            requirements.push(Requirement::checked(key, operator)?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let values = expression.values.clone().unwrap_or_default();
            let operator = match expression.operator.as_str() {
                "In" => Operator::In(values),
                "NotIn" => Operator::NotIn(values),
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(SelectorError::Operator(other.to_owned())),
            };
            requirements.push(Requirement::checked(&expression.key, operator)?);
        }
        Ok(Self::of(requirements))
    }

    /// Equality on each of these labels.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> Self {
        let equals = |(key, value): (&String, &String)| Requirement {
            key: key.clone(),
            operator: Operator::Equals(value.clone()),
        };
        Self::of(labels.iter().map(equals).collect())
    }

    /// Whether an object with these labels is selected.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        !self.nothing
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(labels))
    }

    /// Whether it selects everything.
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    fn of(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self {
            nothing: false,
            requirements,
        }
    }
}

impl Requirement {
    /// Whether labels satisfy it.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Equals(expected) => value == Some(expected),
            Operator::NotEquals(expected) => value != Some(expected),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => integer(value).is_some_and(|value| value > *bound),
            Operator::LessThan(bound) => integer(value).is_some_and(|value| value < *bound),
        }
    }

    fn checked(key: &str, operator: Operator) -> Result<Self, SelectorError> {
        let requirement = Self {
            key: key.to_owned(),
            operator,
        };
        validate::requirement(&requirement).map_err(SelectorError::Invalid)?;
        Ok(requirement)
    }
}

fn integer(value: Option<&String>) -> Option<i64> {
    value.and_then(|value| value.parse().ok())
}

/// Writes the selector as a query string, as `kubectl get rs -o wide` shows it.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.operator {
            Operator::In(values) => write!(f, "{key} in ({})", values.join(",")),
            Operator::NotIn(values) => write!(f, "{key} notin ({})", values.join(",")),
            Operator::Equals(value) => write!(f, "{key}={value}"),
            Operator::NotEquals(value) => write!(f, "{key}!={value}"),
            Operator::Exists => f.write_str(key),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan(bound) => write!(f, "{key}>{bound}"),
            Operator::LessThan(bound) => write!(f, "{key}<{bound}"),
        }
    }
}

#[cfg(test)]
mod tests;
