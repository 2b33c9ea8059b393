//! What names, labels and keys may look like (apimachinery `pkg/util/validation`).
//!
//! Each rule answers the messages of what is wrong; none if all is well.

/// A rule: the messages of what is wrong with a text.
pub(super) type Rule = fn(&str) -> Vec<String>;

/// Longest DNS label, RFC 1123.
const LABEL_BYTES_MAX: usize = 63;
/// Longest DNS subdomain, RFC 1123.
pub(super) const SUBDOMAIN_BYTES_MAX: usize = 253;
/// Longest name of a port, RFC 6335.
const PORT_NAME_BYTES_MAX: usize = 15;

const LABEL_FORMAT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_FORMAT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// `msg (e.g. 'a',  or 'b', regex used for validation is '…')`, two blanks included.
fn with_examples(message: &str, format: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|text| format!("'{text}', ")).collect();
    format!(
        "{message} (e.g. {}regex used for validation is '{format}')",
        examples.join(" or ")
    )
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

/// Begins and ends with a letter or digit, and has nothing but `inner` between.
fn is_framed(text: &str, edge: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => edge(*first) && edge(*last) && text.bytes().all(inner),
        _ => false,
    }
}

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    is_framed(text, is_lower, |byte| is_lower(byte) || byte == b'-')
}

fn is_qualified(text: &str) -> bool {
    is_framed(
        text,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
    )
}

/// A DNS-1123 label.
pub(super) fn label(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !is_label(text) {
        messages.push(with_examples(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
             and must start and end with an alphanumeric character",
            LABEL_FORMAT,
            &["my-name", "123-abc"],
        ));
    }
    messages
}

/// A DNS-1035 label: as above, and it begins with a letter.
pub(super) fn label_1035(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !is_label(text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        messages.push(with_examples(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start \
             with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    messages
}

/// A DNS-1123 subdomain.
pub(super) fn subdomain(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    if !text.split('.').all(is_label) {
        messages.push(with_examples(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
             '-' or '.', and must start and end with an alphanumeric character",
            &format!("{LABEL_FORMAT}(\\.{LABEL_FORMAT})*"),
            &["example.com"],
        ));
    }
    messages
}

/// A key of a label, an annotation, a taint or a finalizer.
pub(super) fn qualified_name(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            let rule = with_examples(QUALIFIED_RULE, QUALIFIED_FORMAT, QUALIFIED_EXAMPLES);
            messages.push(format!(
                "a qualified name {rule} with an optional DNS subdomain prefix and '/' \
                 (e.g. 'example.com/MyName')"
            ));
            return messages;
        }
        Some(("", name)) => {
            messages.push("prefix part must be non-empty".into());
            name
        }
        Some((prefix, name)) => {
            messages.extend(
                subdomain(prefix)
                    .into_iter()
                    .map(|text| format!("prefix part {text}")),
            );
            name
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".into());
    } else if name.len() > LABEL_BYTES_MAX {
        messages.push(format!("name part {}", too_long(LABEL_BYTES_MAX)));
    }
    if !is_qualified(name) {
        let rule = with_examples(QUALIFIED_RULE, QUALIFIED_FORMAT, QUALIFIED_EXAMPLES);
        messages.push(format!("name part {rule}"));
    }
    messages
}

const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must \
                              start and end with an alphanumeric character";
const QUALIFIED_EXAMPLES: &[&str] = &["MyName", "my.name", "123-abc"];

/// A value of a label.
pub(super) fn label_value(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > LABEL_BYTES_MAX {
        messages.push(too_long(LABEL_BYTES_MAX));
    }
    if !text.is_empty() && !is_qualified(text) {
        messages.push(with_examples(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', \
             '_' or '.', and must start and end with an alphanumeric character",
            &format!("({QUALIFIED_FORMAT})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    messages
}

/// A key of a ConfigMap or a Secret, which becomes a file's name.
pub(super) fn config_key(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if text.len() > SUBDOMAIN_BYTES_MAX {
        messages.push(too_long(SUBDOMAIN_BYTES_MAX));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.is_empty() || !text.bytes().all(allowed) {
        messages.push(with_examples(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    match text {
        "." => messages.push("must not be '.'".into()),
        ".." => messages.push("must not be '..'".into()),
        _ if text.starts_with("..") => messages.push("must not start with '..'".into()),
        _ => (),
    }
    messages
}

/// A name of an environment variable.
pub(super) fn environment_name(text: &str) -> Vec<String> {
    let printable = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    if text.is_empty() || !text.bytes().all(printable) {
        return vec![
            "a valid environment variable name must consist only of printable ASCII characters \
             other than '='"
                .into(),
        ];
    }
    Vec::new()
}

/// A name of a port.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut refuse = |wrong: bool, message: &str| {
        if wrong {
            messages.push(message.to_owned());
        }
    };
    refuse(
        text.len() > PORT_NAME_BYTES_MAX,
        &too_long(PORT_NAME_BYTES_MAX),
    );
    refuse(
        !text.bytes().all(|byte| is_lower(byte) || byte == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    refuse(
        !text.bytes().any(|byte| byte.is_ascii_lowercase()),
        "must contain at least one letter (a-z)",
    );
    refuse(text.contains("--"), "must not contain consecutive hyphens");
    let edge = text.starts_with('-') || text.ends_with('-');
    refuse(edge, "must not begin or end with a hyphen");
    messages
}

/// A number of a port.
pub(super) fn port_number(port: i64) -> Vec<String> {
    between(port, 1, 65_535)
}

/// A number within limits.
pub(super) fn between(number: i64, least: i64, most: i64) -> Vec<String> {
    if (least..=most).contains(&number) {
        return Vec::new();
    }
    vec![format!("must be between {least} and {most}, inclusive")]
}
