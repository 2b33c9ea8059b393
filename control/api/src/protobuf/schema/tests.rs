use super::*;

/// Deepest nesting that the decoder's recursion may reach, in messages.
const DEPTH_MAX: usize = 16;

#[test]
fn every_line_of_the_table_is_read() {
    let text = include_str!("../schema.txt");
    let fields = text.lines().filter(|line| line.starts_with(' '));
    let written: usize = fields.map(|line| line.split(',').count()).sum();
    let read: usize = MESSAGES.values().map(|message| message.fields.len()).sum();
    assert_eq!(
        read, written,
        "a field is malformed, or has the number of another"
    );
    assert!(MESSAGES.len() > 170);
}

#[test]
fn every_message_that_a_field_names_is_in_the_table_and_none_contains_itself() {
    for message in MESSAGES.values() {
        assert_nested(message, 1);
    }
}

fn assert_nested(message: &'static Message, depth: usize) {
    assert!(
        depth <= DEPTH_MAX,
        "{} is too deep, or in itself",
        message.name
    );
    for field in message.fields.values() {
        if let Kind::Message(name) = field.kind {
            let inner = field.message();
            assert_nested(
                inner.unwrap_or_else(|| panic!("{}.{} names {name}", message.name, field.name)),
                depth + 1,
            );
        }
    }
}

#[test]
fn every_served_kind_and_what_clients_send_beside_it_is_in_the_table() {
    for resource in crate::strategy::registry() {
        assert!(message(resource.kind).is_some(), "{}", resource.kind);
    }
    for kind in ["Binding", "Scale", "DeleteOptions"] {
        assert!(message(kind).is_some(), "{kind}");
    }
}
