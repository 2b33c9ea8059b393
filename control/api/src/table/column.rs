//! Column definitions, and the cells that many kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Printer;
use super::age::age_at;
use crate::strategy::text_at;

/// One column.
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    description: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    priority: u8,
}

impl Column {
    pub(super) const NAME: Self = Self {
        name: "Name",
        kind: "string",
        format: "name",
        description: "Name must be unique within a namespace.",
        priority: 0,
    };
    pub(super) const AGE: Self = Self::text("Age", "Time since the object was created.");

    /// A column of texts.
    pub(super) const fn text(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            kind: "string",
            format: "",
            description,
            priority: 0,
        }
    }

    /// A column of numbers.
    pub(super) const fn number(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            kind: "integer",
            format: "",
            description,
            priority: 0,
        }
    }

    /// The same, shown with `-o wide` alone.
    pub(super) const fn wide(self) -> Self {
        Self {
            priority: 1,
            ..self
        }
    }

    /// `TableColumnDefinition`.
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// Name and age: kinds without columns of their own.
pub(super) const PLAIN: Printer = Printer {
    columns: &[Column::NAME, Column::AGE],
    cells: |object, now| vec![name(object), created(object, now)],
};

/// `metadata.name`.
pub(super) fn name(object: &Value) -> Value {
    text_at(object, "/metadata/name").into()
}

/// The age of an object.
pub(super) fn created(object: &Value, now: Timestamp) -> Value {
    age_at(object, "/metadata/creationTimestamp", now).into()
}

/// The text at a pointer, or a word for "there is none".
pub(super) fn text_or<'a>(object: &'a Value, pointer: &str, none: &'a str) -> &'a str {
    match text_at(object, pointer) {
        "" => none,
        text => text,
    }
}

/// The number at a pointer, or 0.
pub(super) fn number_at(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

/// How many members the map (or elements the list) at a pointer has.
pub(super) fn count_at(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(members)) => members.len(),
        Some(Value::Array(items)) => items.len(),
        _ => 0,
    }
}
