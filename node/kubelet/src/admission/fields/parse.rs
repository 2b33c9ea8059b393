//! The table's words. Pure.
//!
//! `## name: root root` begins a section, and a root that begins with another section's name stands
//! for that section's roots. `@ path` names the source that reads the fields that follow. Every
//! other line is `path state [value|value] @path ; note`, and `#` begins a comment.

use std::collections::HashMap;

use super::{Row, Section, State};

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text}")]
pub struct Problem {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong.
    pub text: String,
}

/// Reads the table.
pub fn parse(text: &str) -> Result<Vec<Section>, Problem> {
    let mut sections: Vec<Section> = Vec::new();
    let mut roots: HashMap<String, Vec<String>> = HashMap::new();
    let mut place = None;
    for (at, line) in text.lines().enumerate() {
        let problem = |text: &str| Problem {
            line: at + 1,
            text: text.to_owned(),
        };
        if let Some(heading) = line.strip_prefix("## ") {
            let (name, list) = heading
                .split_once(": ")
                .ok_or_else(|| problem("no roots"))?;
            let all = list.split_whitespace();
            let all: Vec<_> = all.flat_map(|root| expanded(root, &roots)).collect();
            roots.insert(name.to_owned(), all.clone());
            place = None;
            sections.push(Section {
                name: name.to_owned(),
                roots: all,
                rows: Vec::new(),
            });
        } else if let Some(path) = line.strip_prefix("@ ") {
            place = Some(path.trim().to_owned());
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            let section = sections.last_mut().ok_or_else(|| problem("no section"))?;
            section
                .rows
                .push(row(line, place.as_ref()).map_err(problem)?);
        }
    }
    Ok(sections)
}

/// `container.env[]` where `container` is a section stands for `env[]` at each of its roots.
fn expanded(root: &str, known: &HashMap<String, Vec<String>>) -> Vec<String> {
    let (first, rest) = root.split_once('.').unwrap_or((root, ""));
    let Some(roots) = known.get(first) else {
        return vec![root.to_owned()];
    };
    let below = |root: &String| match rest {
        "" => root.clone(),
        rest => format!("{root}.{rest}"),
    };
    roots.iter().map(below).collect()
}

fn row(line: &str, place: Option<&String>) -> Result<Row, &'static str> {
    let (line, note) = line.split_once(" ; ").unwrap_or((line, ""));
    let mut words = line.split_whitespace();
    let path = words.next().ok_or("no path")?.to_owned();
    let state = match words.next() {
        Some("served") => State::Served,
        Some("runtime") => State::Runtime,
        Some("control") => State::Control,
        Some("refused") => State::Refused,
        Some("ignored") => State::Ignored,
        _ => return Err("no state"),
    };
    let reads = matches!(state, State::Served | State::Runtime);
    let mut row = Row {
        path,
        state,
        values: Vec::new(),
        place: place.filter(|_| reads).cloned(),
        note: note.trim().to_owned(),
    };
    for word in words {
        let list = word
            .strip_prefix('[')
            .and_then(|word| word.strip_suffix(']'));
        match (list, word.strip_prefix('@')) {
            (Some(list), _) => row.values = list.split('|').map(str::to_owned).collect(),
            (None, Some(path)) => row.place = Some(path.to_owned()),
            (None, None) => return Err("a word that is neither values nor a place"),
        }
    }
    match (reads, &row.place) {
        (true, None) => Err("no source reads it"),
        // What is new below such a path must not pass unseen.
        (true, _) if row.path.ends_with("**") => Err("all below cannot be served by one word"),
        _ => Ok(row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_stands_wherever_its_type_does() {
        let text = "## a: spec.x[] spec.y\n@ f.rs\nname served\nold refused\n\n\
                    ## b: a.inner\n# a comment\nk runtime [1|2] @g.rs ; why not\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections[1].roots, ["spec.x[].inner", "spec.y.inner"]);
        assert_eq!(sections[0].rows[0].place.as_deref(), Some("f.rs"));
        assert_eq!(sections[0].rows[1].place, None);
        let row = &sections[1].rows[0];
        assert_eq!((row.state, row.note.as_str()), (State::Runtime, "why not"));
        assert_eq!(row.values, ["1", "2"]);
        assert_eq!(row.place.as_deref(), Some("g.rs"));
    }

    #[test]
    fn a_line_that_says_nothing_is_named() {
        for (text, problem) in [
            ("x served", "line 1: no section"),
            ("## a: spec\nx", "line 2: no state"),
            ("## a: spec\nx served", "line 2: no source reads it"),
            (
                "## a: spec\nx.** served @f.rs",
                "line 2: all below cannot be served by one word",
            ),
            (
                "## a: spec\nx refused y",
                "line 2: a word that is neither values nor a place",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), problem);
        }
    }
}
