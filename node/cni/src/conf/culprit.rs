//! Which field it is that cannot be read.
//!
//! The error itself does not say: fields of several structs are in one object, and what reads them
//! (`serde(flatten)`) forgets their names. So the conf is read once more without each field.

use serde_json::Value;

use super::fields::Fields;
use crate::error::NetworkError;

/// A field's name, below that of the object that it is in.
const DEPTH_MAX: usize = 2;

/// The error of a conf that cannot be read, with the name of the field if it is a field's.
pub(super) fn named(json: &[u8], source: serde_json::Error) -> NetworkError {
    let found = serde_json::from_slice(json)
        .ok()
        .and_then(|conf| field(&conf));
    match found {
        Some(field) => NetworkError::Field { field, source },
        None => NetworkError::Decode(source),
    }
}

fn field(conf: &Value) -> Option<String> {
    let failure_of_all = failure(conf)?;
    let mut path = Vec::new();
    while path.len() < DEPTH_MAX {
        let Some(name) = next(conf, &path, &failure_of_all) else {
            break;
        };
        path.push(name);
    }
    (!path.is_empty()).then(|| path.join("."))
}

/// The member of the object at `path` without which the failure is another one, or none.
fn next(conf: &Value, path: &[String], failure_of_all: &str) -> Option<String> {
    let object = path.iter().try_fold(conf, |value, name| value.get(name))?;
    let mut necessary = None;
    for name in object.as_object()?.keys() {
        let mut rest = conf.clone();
        let mut names = path.iter();
        let inside = names.try_fold(&mut rest, |value, name| value.get_mut(name));
        inside?.as_object_mut()?.remove(name);
        match failure(&rest) {
            Some(failure) if failure == failure_of_all => {}
            // It has to be there, whatever is wrong: it is the one if no other is.
            Some(failure) if failure.contains(&format!("missing field `{name}`")) => {
                necessary = Some(name.clone());
            }
            _ => return Some(name.clone()),
        }
    }
    necessary
}

/// What is wrong first; the value has no lines and columns that would differ.
fn failure(conf: &Value) -> Option<String> {
    let read = serde_json::from_value::<Fields>(conf.clone());
    read.err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::NetworkConf;
    use super::*;

    #[test]
    fn a_field_that_cannot_be_read_is_named_wherever_it_is_declared() {
        for (field, wrong) in [
            ("mtu", json!({"mtu": "1500"})),
            ("vlan", json!({"vlan": "5"})),
            ("forceAddress", json!({"forceAddress": "yes"})),
            ("bridge", json!({"bridge": 1, "vlan": "5"})),
            (
                "ipam.rangeStart",
                json!({"ipam": {"type": "host-local", "rangeStart": "10.88"}}),
            ),
            ("ipam", json!({"ipam": {"subnet": "10.88.0.0/16"}})),
            (
                "runtimeConfig.ips",
                json!({"runtimeConfig": {"ips": "10.88.0.9"}}),
            ),
            ("args.cni", json!({"args": {"cni": {"mac": 1}}})),
        ] {
            let mut conf = json!({
                "cniVersion": "1.0.0", "name": "pods",
                "ipam": { "type": "host-local", "subnet": "10.88.0.0/16" },
            });
            for (name, value) in wrong.as_object().unwrap() {
                conf[name] = value.clone();
            }
            let error = NetworkConf::parse(conf.to_string().as_bytes()).unwrap_err();
            assert_eq!(error.code(), 6, "{wrong}");
            let text = error.to_string();
            assert!(text.contains(&format!("{field:?}")), "{field}: {text}");
        }
        let error = NetworkConf::parse(b"{").unwrap_err();
        assert!(matches!(error, NetworkError::Decode(_)), "{error}");
    }
}
