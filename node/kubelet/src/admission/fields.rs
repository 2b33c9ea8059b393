//! What becomes of each field of a pod. What a user wrote is never silently ignored.
//!
//! `fields.txt` says of every field of the API's types whether it is served, handed to the runtime,
//! the control plane's, refused, or ignored by design. A pod is refused by the very same table: a
//! field without a row cannot pass. Tests hold the table against the API's types, against the
//! sources that it names, and against `docs/SUPPORT.md`, which shows it.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

mod parse;
#[cfg(test)]
mod schema;
mod show;
#[cfg(test)]
mod tests;

pub use parse::{Problem, parse};
pub use show::document;

/// The table as it is written.
pub const TEXT: &str = include_str!("fields.txt");

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let sections = parse(TEXT).expect("a test reads the same text");
    Table::new(&sections)
});

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The node acts on it.
    Served,
    /// The node hands it to the container runtime.
    Runtime,
    /// The control plane acts on it, or would; the node has no part in it.
    Control,
    /// A pod that sets it is refused, by the field's name.
    Refused,
    /// It means nothing on a Linux node.
    Ignored,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Path below the section: `[]` stands for each element, `{key}` for an entry of a map, a final
    /// `.**` for all below.
    pub path: String,
    /// What becomes of it.
    pub state: State,
    /// If there are any: the only values that are served; others are refused.
    pub values: Vec<String>,
    /// The source that reads the field.
    pub place: Option<String>,
    /// What else a user should know.
    pub note: String,
}

/// Lines about one type of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its heading.
    pub name: String,
    /// Where the type occurs, from the pod's root.
    pub roots: Vec<String>,
    /// The lines.
    pub rows: Vec<Row>,
}

/// Names the fields that the pod sets and that this node does not serve, by their paths in the
/// object; empty if it serves all.
pub fn refused(pod: &Pod) -> Vec<String> {
    let Ok(spec) = serde_json::to_value(&pod.spec) else {
        return vec!["spec (unreadable)".to_owned()];
    };
    let mut walk = Walk {
        table: &TABLE,
        found: Vec::new(),
    };
    walk.value("spec", "spec", &spec);
    walk.found
}

/// The lines by full path.
struct Table {
    fields: HashMap<String, Rule>,
    /// Paths of which a line speaks for all below.
    subtrees: HashMap<String, Rule>,
    /// Paths of maps.
    maps: HashSet<String>,
}

#[derive(Clone, Debug)]
struct Rule {
    refused: bool,
    values: Vec<String>,
}

impl Table {
    fn new(sections: &[Section]) -> Self {
        let mut table = Self {
            fields: HashMap::new(),
            subtrees: HashMap::new(),
            maps: HashSet::new(),
        };
        for section in sections {
            for (root, row) in section
                .roots
                .iter()
                .flat_map(|root| section.rows.iter().map(move |row| (root, row)))
            {
                table.add(&format!("{root}.{}", row.path), row);
            }
        }
        table
    }

    fn add(&mut self, path: &str, row: &Row) {
        let rule = Rule {
            refused: row.state == State::Refused,
            values: row.values.clone(),
        };
        if let Some(parent) = path.strip_suffix(".**") {
            self.subtrees.insert(parent.to_owned(), rule);
            return;
        }
        if let Some((map, _)) = path.rsplit_once('{') {
            self.maps.insert(map.to_owned());
        }
        self.fields.insert(path.to_owned(), rule);
    }

    /// The line of a map's entry: its own, that of its beginning, or that of all.
    fn entry(&self, map: &str, key: &str) -> Option<&Rule> {
        let family = key.split_once('-').map_or(key, |(family, _)| family);
        let mut patterns = [
            format!("{map}{{{key}}}"),
            format!("{map}{{{family}-*}}"),
            format!("{map}{{*}}"),
        ]
        .into_iter();
        patterns.find_map(|pattern| self.fields.get(&pattern))
    }
}

struct Walk<'a> {
    table: &'a Table,
    found: Vec<String>,
}

impl Walk<'_> {
    /// `path` is the field's in the table, `shown` its path in this pod.
    fn value(&mut self, path: &str, shown: &str, value: &Value) {
        if let Some(rule) = self.table.subtrees.get(path) {
            if rule.refused && is_set(value) {
                self.found.push(shown.to_owned());
            }
            return;
        }
        match value {
            Value::Object(fields) if self.table.maps.contains(path) => {
                for (key, value) in fields {
                    let rule = self.table.entry(path, key);
                    self.judge(rule, &format!("{shown}[{key}]"), value);
                }
            }
            Value::Object(fields) => {
                for (field, value) in fields {
                    let shown = format!("{shown}.{field}");
                    self.value(&format!("{path}.{field}"), &shown, value);
                }
            }
            Value::Array(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    let name = element.get("name").and_then(Value::as_str);
                    let name = name.map_or_else(|| at.to_string(), str::to_owned);
                    self.value(&format!("{path}[]"), &format!("{shown}[{name}]"), element);
                }
            }
            leaf => self.judge(self.table.fields.get(path), shown, leaf),
        }
    }

    fn judge(&mut self, rule: Option<&Rule>, shown: &str, value: &Value) {
        if !is_set(value) {
            return;
        }
        let text = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        match rule {
            // A field that nobody has thought of.
            None => self.found.push(shown.to_owned()),
            Some(rule) if rule.values.contains(&text) => {}
            Some(rule) if rule.refused && rule.values.is_empty() => {
                // `false` is what stands there if nothing is said.
                if value != false {
                    self.found.push(shown.to_owned());
                }
            }
            Some(rule) if rule.values.is_empty() => {}
            Some(_) => self.found.push(format!("{shown}: {text}")),
        }
    }
}

/// Whether the user has said something: an empty text or list says nothing, and neither does
/// `null`.
fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        _ => true,
    }
}
