//! What a ConfigMap or Secret holds.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;
use swiftlet_model::control_plane::RefKind;

/// `data` and `binaryData` of a ConfigMap, `data` of a Secret, as bytes.
pub(crate) fn data_of(kind: RefKind, json: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let object: Value = serde_json::from_slice(json).unwrap_or_default();
    let mut data = BTreeMap::new();
    let mut take = |field: &str, encoded: bool| {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            let bytes = if encoded {
                BASE64.decode(text).unwrap_or_default()
            } else {
                text.into()
            };
            data.insert(key.clone(), bytes);
        }
    };
    take("data", kind == RefKind::Secret);
    take("binaryData", true);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_decoded_and_config_maps_are_not() {
        let secret = data_of(RefKind::Secret, br#"{"data":{"k":"dmFsdWU="}}"#);
        assert_eq!(secret["k"], b"value");
        let map = data_of(
            RefKind::ConfigMap,
            br#"{"data":{"k":"v"},"binaryData":{"b":"AAE="}}"#,
        );
        assert_eq!(map["k"], b"v");
        assert_eq!(map["b"], [0, 1]);
    }
}
