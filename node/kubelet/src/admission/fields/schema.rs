//! The fields of an API type, as its own `Deserialize` tells them.
//!
//! A deserializer that has no text: asked for a struct it gives every field that the type names,
//! asked for a list or a map one element. So each field is met once, and none that the type has can
//! be missed.

use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

/// A field that holds no others, with a value that it takes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    /// Its path: `[]` for an element, `{}` for an entry of a map.
    pub(super) path: String,
    pub(super) sample: Value,
}

/// Every field below the type.
pub(super) fn leaves<T: DeserializeOwned>(root: &str) -> Vec<Leaf> {
    let mut found = Vec::new();
    let tracer = Tracer {
        path: root.to_owned(),
        found: &mut found,
        text: "x",
    };
    T::deserialize(tracer).expect("a type takes its own fields");
    found
}

struct Tracer<'a> {
    path: String,
    found: &'a mut Vec<Leaf>,
    text: &'static str,
}

impl Tracer<'_> {
    fn leaf(self, sample: Value) {
        self.found.push(Leaf {
            path: self.path,
            sample,
        });
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $kind:ty),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.leaf(json!(1));
            visitor.$visit(<$kind>::from(1_u8))
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Error;

    numbers!(
        deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_f32 visit_f32 f32,
        deserialize_f64 visit_f64 f64
    );

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.leaf(json!(1));
        visitor.visit_i8(1)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.leaf(json!(true));
        visitor.visit_bool(true)
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text;
        self.leaf(json!(text));
        visitor.visit_str(text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        // The types that take no other text.
        self.text = match name {
            "Time" => "2020-01-01T00:00:00Z",
            "MicroTime" => "2020-01-01T00:00:00.000000Z",
            "ByteString" => "eA==",
            _ => self.text,
        };
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(One(Some(self)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            tracer: self,
            names: ["key"].iter(),
            now: "",
            is_map: true,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Fields {
            tracer: self,
            names: fields.iter(),
            now: "",
            is_map: false,
        })
    }

    serde::forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct tuple tuple_struct enum identifier
        ignored_any
    }
}

/// A list of one element.
struct One<'a>(Option<Tracer<'a>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(tracer) = self.0.take() else {
            return Ok(None);
        };
        let element = Tracer {
            path: format!("{}[]", tracer.path),
            ..tracer
        };
        seed.deserialize(element).map(Some)
    }
}

/// All fields of a struct, or one entry of a map.
struct Fields<'a> {
    tracer: Tracer<'a>,
    names: std::slice::Iter<'static, &'static str>,
    now: &'static str,
    is_map: bool,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.next() else {
            return Ok(None);
        };
        self.now = name;
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let path = &self.tracer.path;
        seed.deserialize(Tracer {
            path: if self.is_map {
                format!("{path}{{}}")
            } else {
                format!("{path}.{}", self.now)
            },
            found: &mut *self.tracer.found,
            text: "x",
        })
    }
}

/// An object in which nothing is set but the field at `path`.
pub(super) fn object(path: &str, sample: &Value) -> Value {
    let mut value = sample.clone();
    for field in path.split('.').rev() {
        let name = field.trim_end_matches("[]").trim_end_matches("{}");
        if field.ends_with("{}") {
            value = json!({ "key": value });
        }
        if field.ends_with("[]") {
            value = json!([value]);
        }
        value = json!({ name: value });
    }
    value
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, VolumeMount};

    use super::*;

    #[test]
    fn every_field_of_a_type_is_met_once() {
        let found = leaves::<VolumeMount>("m");
        let paths: Vec<_> = found.iter().map(|leaf| leaf.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "m.mountPath",
                "m.mountPropagation",
                "m.name",
                "m.readOnly",
                "m.recursiveReadOnly",
                "m.subPath",
                "m.subPathExpr"
            ]
        );
    }

    #[test]
    fn what_lies_deeper_is_met_too() {
        let found = leaves::<Container>("c");
        for path in [
            "c.args[]",
            "c.resources.limits{}",
            "c.env[].valueFrom.fieldRef.fieldPath",
            "c.livenessProbe.httpGet.httpHeaders[].value",
        ] {
            assert!(found.iter().any(|leaf| leaf.path == path), "{path}");
        }
    }

    #[test]
    fn an_object_holds_nothing_but_its_field() {
        assert_eq!(
            object("spec.a[].b{}", &json!(1)),
            json!({"spec": {"a": [{"b": {"key": 1}}]}})
        );
    }
}
