//! What is a valid label key and value (`k8s.io/apimachinery/pkg/util/validation`).

use super::{Operator, Requirement};

/// Longest label name and value, in bytes (Kubernetes' `LabelValueMaxLength`).
const LABEL_LENGTH_MAX: usize = 63;
/// Longest label prefix, in bytes (a DNS-1123 subdomain).
const PREFIX_LENGTH_MAX: usize = 253;

const NAME_RULE: &str = "\
    name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
    and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const PREFIX_RULE: &str = "\
    prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
    'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED_RULE: &str = "\
    a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
    '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') \
    with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const VALUE_RULE: &str = "\
    a valid label must be an empty string or consist of alphanumeric characters, '-', \
    '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  \
    or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Checks a label's (or an annotation's or a taint's) key; answers what is wrong with it.
pub fn validate_label_key(key: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((_, name)) if name.contains('/') => return vec![QUALIFIED_RULE.to_owned()],
        Some((prefix, name)) => {
            prefix_errors(prefix, &mut errors);
            name
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH_MAX {
        errors.push(format!(
            "name part must be no more than {LABEL_LENGTH_MAX} bytes"
        ));
    }
    if !is_label_text(name) {
        errors.push(NAME_RULE.to_owned());
    }
    errors
}

/// Checks a label's value; answers what is wrong with it.
pub fn validate_label_value(value: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if value.len() > LABEL_LENGTH_MAX {
        errors.push(format!("must be no more than {LABEL_LENGTH_MAX} bytes"));
    }
    if !value.is_empty() && !is_label_text(value) {
        errors.push(VALUE_RULE.to_owned());
    }
    errors
}

/// A key in a selector, with the path that Kubernetes prints.
pub(super) fn key(key: &str) -> Result<(), String> {
    let errors = validate_label_key(key);
    if errors.is_empty() {
        return Ok(());
    }
    Err(format!(
        "key: Invalid value: {key:?}: {}",
        errors.join("; ")
    ))
}

/// A whole requirement.
pub(super) fn requirement(requirement: &Requirement) -> Result<(), String> {
    key(&requirement.key)?;
    let values = match &requirement.operator {
        Operator::In(values) | Operator::NotIn(values) => {
            if values.is_empty() {
                let rule = "for 'in', 'notin' operators, values set can't be empty";
                return Err(format!("values: Invalid value: []: {rule}"));
            }
            values.as_slice()
        }
        Operator::Equals(value) | Operator::NotEquals(value) => std::slice::from_ref(value),
        _ => &[],
    };
    for (index, value) in values.iter().enumerate() {
        let errors = validate_label_value(value);
        if !errors.is_empty() {
            let path = format!("values[{index}][{}]", requirement.key);
            return Err(format!(
                "{path}: Invalid value: {value:?}: {}",
                errors.join("; ")
            ));
        }
    }
    Ok(())
}

fn prefix_errors(prefix: &str, errors: &mut Vec<String>) {
    if prefix.is_empty() {
        errors.push("prefix part must be non-empty".to_owned());
        return;
    }
    if prefix.len() > PREFIX_LENGTH_MAX {
        errors.push(format!(
            "prefix part must be no more than {PREFIX_LENGTH_MAX} bytes"
        ));
    }
    if !prefix.split('.').all(is_dns_label) {
        errors.push(PREFIX_RULE.to_owned());
    }
}

fn is_dns_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().all(|byte| inner(byte) || byte == b'-')
        && text.bytes().next().is_some_and(inner)
        && text.bytes().last().is_some_and(inner)
}

fn is_label_text(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text
            .bytes()
            .last()
            .is_some_and(|byte| byte.is_ascii_alphanumeric())
}
