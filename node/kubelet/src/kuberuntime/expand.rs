//! `$(VAR)` in commands, arguments and environment. Pure.
//!
//! `$(NAME)` becomes the variable's value if it is known and stays as written otherwise; `$$` is
//! one dollar sign; any other dollar sign stays. Source: `third_party/forked/golang/expansion` of
//! Kubernetes.

use std::collections::BTreeMap;

/// Expands all references in `text`.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    expand_with(text, |name| variables.get(name))
}

/// Expands all references in `text` of which `value` knows the value.
pub fn expand_with<T: AsRef<str>>(text: &str, mut value: impl FnMut(&str) -> Option<T>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = match after.chars().next() {
            Some('$') => {
                out.push('$');
                &after[1..]
            }
            Some('(') => {
                if let Some(end) = after.find(')') {
                    let name = &after[1..end];
                    match value(name) {
                        Some(value) => out.push_str(value.as_ref()),
                        None => out.extend(["$(", name, ")"]),
                    }
                    &after[end + 1..]
                } else {
                    // Not closed: the rest may still hold other references.
                    out.push_str("$(");
                    &after[1..]
                }
            }
            Some(other) => {
                out.push('$');
                out.push(other);
                &after[other.len_utf8()..]
            }
            None => {
                out.push('$');
                after
            }
        };
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn variables() -> BTreeMap<String, String> {
        [("A", "1"), ("B", "$(A)"), ("EMPTY", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        for (text, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            ("$(B)", "$(A)"),
            ("$(EMPTY)", ""),
            ("$(NOT)", "$(NOT)"),
            ("$(A", "$(A"),
            ("$A$", "$A$"),
            ("$()", "$()"),
            ("\u{e9}$(A)\u{e9}", "\u{e9}1\u{e9}"),
        ] {
            assert_eq!(expand(text, &variables()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_text_without_dollars_stays(text in "[^$]*") {
            prop_assert_eq!(expand(&text, &variables()), text);
        }

        #[test]
        fn doubled_dollars_hide_every_reference(text in "[a-zA-Z$() ]*") {
            let escaped = text.replace('$', "$$");
            prop_assert_eq!(expand(&escaped, &variables()), text);
        }

        #[test]
        fn unknown_names_leave_what_was_written(text in "([a-z]|\\$\\([a-z]+\\))*") {
            prop_assert_eq!(expand(&text, &variables()), text);
        }
    }
}
