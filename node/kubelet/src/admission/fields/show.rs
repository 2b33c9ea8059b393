//! The table as a document. Pure.

use std::fmt::Write;

use super::{Row, Section, State};

const HEAD: &str = "\
# Fields of a pod

What becomes of every field of a pod's `spec`. The node decides by the same table
(`node/kubelet/src/admission/fields.txt`), and tests hold it against the API's types, so that no
field can be ignored unseen. This page is made from it: `make pod-fields`.

- **served**: the node acts on it
- **runtime**: the node hands it to the container runtime
- **control plane**: nothing for the node to do
- **refused**: a pod that sets it fails with a message that names it
- **ignored**: it means nothing here

`[]` stands for each element of a list, `{key}` for an entry of a map, `**` for all below. Where
values are named, others are refused.
";

/// The document.
pub fn document(sections: &[Section]) -> String {
    let mut text = HEAD.to_owned();
    for section in sections {
        let roots: Vec<_> = section
            .roots
            .iter()
            .map(|root| format!("`{root}`"))
            .collect();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## {}\n\nBelow {}.\n\n| field | state | remarks |\n| --- | --- | --- |\n",
            section.name,
            roots.join(", ")
        );
        for row in &section.rows {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                row.path,
                state(row.state),
                remarks(row)
            );
        }
    }
    text
}

fn state(state: State) -> &'static str {
    match state {
        State::Served => "served",
        State::Runtime => "runtime",
        State::Control => "control plane",
        State::Refused => "refused",
        State::Ignored => "ignored",
    }
}

fn remarks(row: &Row) -> String {
    let values = row.values.iter().map(|value| format!("`{value}`"));
    let values = values.collect::<Vec<_>>().join(", ");
    let values = match row.state {
        _ if values.is_empty() => None,
        State::Refused => Some(format!("but for {values}")),
        _ => Some(values),
    };
    let note = Some(row.note.clone()).filter(|note| !note.is_empty());
    let all: Vec<_> = [values, note].into_iter().flatten().collect();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn a_line_shows_its_state_values_and_note() {
        let text = "## Pod: spec\na served [x|y] @f.rs ; why\nb refused [true]\n\
                    d.** control\n";
        let shown = document(&parse(text).unwrap());
        for line in [
            "| `a` | served | `x`, `y`; why |",
            "| `b` | refused | but for `true` |",
            "| `d.**` | control plane |  |",
        ] {
            assert!(shown.contains(line), "{shown}");
        }
    }
}
