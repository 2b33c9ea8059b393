//! Strict decoding: one pass over a JSON value with the typed struct of its kind.
//!
//! `k8s-openapi` ignores unknown fields and forgets where an error happened. This deserializer
//! stands between the value and the typed struct: it knows the path, the struct that owns a field
//! and the fields of that struct, so it can say what Kubernetes says, and drop what it drops.

use std::cell::RefCell;
use std::fmt;

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::canonical::{NOT_A_QUANTITY, canonical_quantity};

/// An object whose fields all have the right types and are all known.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// The object without nulls and unknown fields, with canonical quantities.
    pub object: Value,
    /// Paths of the fields that were dropped, such as `spec.containers[0].imagee`.
    pub unknown: Vec<String>,
}

/// A value does not have the type of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// The path of the field, with indices; empty for the object itself.
    pub path: String,
    /// What is wrong, in the words of Kubernetes.
    pub message: String,
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeMismatch {}

impl serde::de::Error for TypeMismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            path: String::new(),
            message: message.to_string(),
        }
    }
}

/// Decodes `value` as a `T`.
pub fn decode<'de, T: serde::Deserialize<'de>>(value: &'de Value) -> Result<Decoded, TypeMismatch> {
    let notes = RefCell::new(Notes::default());
    let root = Node {
        value,
        trail: &Trail::Root,
        owner: "",
        notes: &notes,
    };
    T::deserialize(root)?;
    let notes = notes.into_inner();
    let mut object = value.clone();
    for (pointer, quantity) in &notes.quantities {
        if let Some(slot) = object.pointer_mut(pointer) {
            *slot = Value::String(quantity.clone());
        }
    }
    for (pointer, key) in &notes.dropped {
        if let Some(Value::Object(parent)) = object.pointer_mut(pointer) {
            parent.remove(key);
        }
    }
    Ok(Decoded {
        object,
        unknown: notes.unknown,
    })
}

/// What the pass found.
#[derive(Default)]
struct Notes {
    /// Display paths of unknown fields.
    unknown: Vec<String>,
    /// Parent pointer and key of members to remove: unknown fields and nulls.
    dropped: Vec<(String, String)>,
    /// Pointer and canonical text of quantities that were written differently.
    quantities: Vec<(String, String)>,
}

/// Where we are; lives on the stack of the recursion.
enum Trail<'t> {
    Root,
    Key(&'t Trail<'t>, &'t str),
    Index(&'t Trail<'t>, usize),
}

impl Trail<'_> {
    /// `spec.containers[0].image`.
    fn display(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => {
                let parent = parent.display();
                if parent.is_empty() {
                    (*key).to_owned()
                } else {
                    format!("{parent}.{key}")
                }
            }
            Self::Index(parent, index) => format!("{}[{index}]", parent.display()),
        }
    }

    /// `spec.containers.image`, as Go's decoder names a field.
    fn without_indices(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => {
                let parent = parent.without_indices();
                if parent.is_empty() {
                    (*key).to_owned()
                } else {
                    format!("{parent}.{key}")
                }
            }
            Self::Index(parent, _) => parent.without_indices(),
        }
    }

    /// The JSON pointer (RFC 6901).
    fn pointer(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => {
                format!(
                    "{}/{}",
                    parent.pointer(),
                    key.replace('~', "~0").replace('/', "~1")
                )
            }
            Self::Index(parent, index) => format!("{}/{index}", parent.pointer()),
        }
    }
}

#[derive(Clone, Copy)]
struct Node<'de, 't> {
    value: &'de Value,
    trail: &'t Trail<'t>,
    /// The innermost struct, as messages name it.
    owner: &'static str,
    notes: &'t RefCell<Notes>,
}

impl<'de> Node<'de, '_> {
    /// The value is not a `wanted`.
    fn mismatch(&self, wanted: &str) -> TypeMismatch {
        let found = match self.value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            // Go shows a number that does not fit, and only the word for one that is not wanted.
            Value::Number(number) if wanted.contains("int") => format!("number {number}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let field = self.trail.without_indices();
        let message = if field.is_empty() {
            format!("json: cannot unmarshal {found} into Go value of type {wanted}")
        } else {
            let owner = self.owner;
            format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{field} of type \
                 {wanted}"
            )
        };
        TypeMismatch {
            path: self.trail.display(),
            message,
        }
    }

    /// Completes an error that came from a type without a path of its own.
    fn located(&self, mut error: TypeMismatch) -> TypeMismatch {
        if error.path.is_empty() {
            error.path = self.trail.display();
            if !error.message.starts_with("json: ") {
                error.message = format!("json: {}: {}", error.path, error.message);
            }
        }
        error
    }

    fn visit_array<V: Visitor<'de>>(
        self,
        items: &'de [Value],
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        visitor.visit_seq(Items {
            node: self,
            items: items.iter().enumerate(),
        })
    }

    fn visit_object<V: Visitor<'de>>(
        self,
        members: &'de Map<String, Value>,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        visitor.visit_map(Members {
            node: self,
            pairs: members.iter(),
            current: None,
            fields,
        })
    }

    /// The text of a quantity; YAML writers leave the quotes away, so numbers are taken too.
    fn quantity(&self) -> Result<String, TypeMismatch> {
        let written = match self.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(self.mismatch("resource.Quantity")),
        };
        let Some(canonical) = canonical_quantity(&written) else {
            let path = self.trail.display();
            let message = format!("{NOT_A_QUANTITY}: {path}");
            return Err(TypeMismatch { path, message });
        };
        if self.value.as_str() != Some(canonical.as_str()) {
            self.notes
                .borrow_mut()
                .quantities
                .push((self.trail.pointer(), canonical.clone()));
        }
        Ok(canonical)
    }
}

macro_rules! integers {
    ($($method:ident: $as:ident $type:ty => $visit:ident $name:literal,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
            let number = self.value.$as().and_then(|number| <$type>::try_from(number).ok());
            visitor.$visit(number.ok_or_else(|| self.mismatch($name))?)
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = TypeMismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        let result = match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => visitor.visit_i64(value),
                (None, Some(value)) => visitor.visit_u64(value),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => self.visit_array(items, visitor),
            Value::Object(members) => self.visit_object(members, None, visitor),
        };
        result.map_err(|error| self.located(error))
    }

    integers! {
        deserialize_i8: as_i64 i8 => visit_i8 "int8",
        deserialize_i16: as_i64 i16 => visit_i16 "int16",
        deserialize_i32: as_i64 i32 => visit_i32 "int32",
        deserialize_i64: as_i64 i64 => visit_i64 "int64",
        deserialize_u8: as_u64 u8 => visit_u8 "uint8",
        deserialize_u16: as_u64 u16 => visit_u16 "uint16",
        deserialize_u32: as_u64 u32 => visit_u32 "uint32",
        deserialize_u64: as_u64 u64 => visit_u64 "uint64",
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        visitor.visit_f64(
            self.value
                .as_f64()
                .ok_or_else(|| self.mismatch("float64"))?,
        )
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        visitor.visit_bool(self.value.as_bool().ok_or_else(|| self.mismatch("bool"))?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        let text = self.value.as_str().ok_or_else(|| self.mismatch("string"))?;
        visitor
            .visit_borrowed_str(text)
            .map_err(|error| self.located(error))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        if self.value.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        if name == "Quantity" {
            let text = self.quantity()?;
            let inner: StrDeserializer<'_, TypeMismatch> = text.as_str().into_deserializer();
            return visitor.visit_newtype_struct(inner);
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        match self.value {
            Value::Array(items) => self.visit_array(items, visitor),
            _ => Err(self.mismatch("[]object")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeMismatch> {
        match self.value {
            Value::Object(members) => self.visit_object(members, None, visitor),
            _ => Err(self.mismatch("map[string]string")),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeMismatch> {
        match self.value {
            Value::Object(members) => Node {
                owner: name,
                ..self
            }
            .visit_object(members, Some(fields), visitor),
            _ => Err(self.mismatch(&format!("v1.{name}"))),
        }
    }

    serde::forward_to_deserialize_any! {
        char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

/// The elements of an array.
struct Items<'de, 't> {
    node: Node<'de, 't>,
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = TypeMismatch;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, TypeMismatch> {
        let Some((index, value)) = self.items.next() else {
            return Ok(None);
        };
        let trail = Trail::Index(self.node.trail, index);
        let node = Node {
            value,
            trail: &trail,
            owner: self.node.owner,
            notes: self.node.notes,
        };
        seed.deserialize(node)
            .map(Some)
            .map_err(|error| node.located(error))
    }
}

/// The members of an object: a struct if `fields` is set, otherwise a map.
struct Members<'de, 't> {
    node: Node<'de, 't>,
    pairs: serde_json::map::Iter<'de>,
    current: Option<(&'de String, &'de Value)>,
    fields: Option<&'static [&'static str]>,
}

impl Members<'_, '_> {
    /// Notes members that are to be dropped: unknown ones, and nulls in structs.
    fn note(&self, key: &str, value: &Value) {
        let Some(fields) = self.fields else { return };
        let known = fields.contains(&key);
        if known && !value.is_null() {
            return;
        }
        let mut notes = self.node.notes.borrow_mut();
        notes
            .dropped
            .push((self.node.trail.pointer(), key.to_owned()));
        if !known {
            notes
                .unknown
                .push(Trail::Key(self.node.trail, key).display());
        }
    }
}

impl<'de> MapAccess<'de> for Members<'de, '_> {
    type Error = TypeMismatch;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, TypeMismatch> {
        let Some((key, value)) = self.pairs.next() else {
            return Ok(None);
        };
        self.note(key, value);
        self.current = Some((key, value));
        let key: StrDeserializer<'_, TypeMismatch> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, TypeMismatch> {
        let Some((key, value)) = self.current.take() else {
            return Err(serde::de::Error::custom(
                "a value was asked for before its key",
            ));
        };
        let trail = Trail::Key(self.node.trail, key);
        let node = Node {
            value,
            trail: &trail,
            owner: self.node.owner,
            notes: self.node.notes,
        };
        seed.deserialize(node).map_err(|error| node.located(error))
    }
}
