//! The table of a pod's fields, held against the sources and the document.

use std::path::{Path, PathBuf};

use swiftlet_kubelet::admission::fields::{TEXT, document, parse};

/// The document, from the workspace's root.
const DOCUMENT: &str = "docs/POD-FIELDS.md";
/// Set, the document is written instead of compared.
const WRITE: &str = "SWIFTLET_WRITE_DOCS";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    root.expect("the workspace").to_owned()
}

/// A field's name in Rust: `hostPID` is `host_pid`, `setHostnameAsFQDN` is `set_hostname_as_fqdn`.
fn snake(field: &str) -> String {
    let letters: Vec<char> = field.chars().collect();
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let begins = letter.is_uppercase()
            && at > 0
            && (letters[at - 1].is_lowercase()
                || letters.get(at + 1).is_some_and(|next| next.is_lowercase()));
        if begins {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

#[test]
fn names_are_those_of_the_types() {
    for (field, name) in [
        ("hostPID", "host_pid"),
        ("setHostnameAsFQDN", "set_hostname_as_fqdn"),
        ("fsGroup", "fs_group"),
        ("seLinuxOptions", "se_linux_options"),
        ("httpGet", "http_get"),
    ] {
        assert_eq!(snake(field), name);
    }
}

#[test]
fn a_field_that_is_served_is_read_where_the_table_says() {
    let mut problems = Vec::new();
    for section in parse(TEXT).expect("the table") {
        for row in &section.rows {
            let Some(place) = &row.place else { continue };
            let Ok(text) = std::fs::read_to_string(root().join(place)) else {
                problems.push(format!("{}: {}: no {place}", section.name, row.path));
                continue;
            };
            let path = row.path.split(['[', '{']).collect::<Vec<_>>();
            let last = if row.path.contains('{') {
                path[0]
            } else {
                row.path.trim_end_matches("[]")
            };
            let name = snake(last.rsplit('.').next().unwrap_or_default());
            let is_read = text
                .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
                .any(|word| word.trim_end_matches('_') == name);
            if !is_read {
                problems.push(format!("{}: {place} does not read {name}", section.name));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_document_shows_the_table() {
    let shown = document(&parse(TEXT).expect("the table"));
    let path = root().join(DOCUMENT);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &shown).expect("writable");
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stands == shown, "{DOCUMENT} is old: make pod-fields");
}
