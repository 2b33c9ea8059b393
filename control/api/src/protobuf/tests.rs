use super::*;

/// A field of length `value.len()`.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(value.len()).unwrap()];
    field.extend_from_slice(value);
    field
}

fn varint(number: u8, value: u8) -> Vec<u8> {
    vec![number << 3, value]
}

fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
}

#[test]
fn a_config_map_becomes_the_json_that_its_client_meant() {
    let metadata = [bytes(1, b"cm"), bytes(2, b""), bytes(8, b"")].concat();
    let pair = [bytes(1, b"a"), bytes(2, b"b")].concat();
    let raw = [bytes(1, &metadata), bytes(2, &pair)].concat();
    let object = decode(&enveloped("v1", "ConfigMap", &raw), "").unwrap();
    let wanted = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "cm" }, "data": { "a": "b" },
    });
    assert_eq!(object, wanted);
}

#[test]
fn zero_is_kept_where_it_is_not_the_same_as_unset() {
    let spec = [varint(1, 0), varint(5, 0)].concat();
    let raw = bytes(2, &spec);
    let object = decode(&enveloped("apps/v1", "Deployment", &raw), "").unwrap();
    assert_eq!(object["spec"], json!({ "replicas": 0 }));
}

#[test]
fn an_unknown_field_is_refused_by_number() {
    let wrong = decode(&enveloped("v1", "ConfigMap", &varint(15, 1)), "").unwrap_err();
    assert_eq!(
        wrong,
        ProtobufError::UnknownField {
            message: "ConfigMap".into(),
            number: 15
        }
    );
}

#[test]
fn what_is_cut_off_is_refused() {
    let whole = enveloped("v1", "ConfigMap", &bytes(1, &bytes(1, b"cm")));
    for length in 0..whole.len() {
        let _ = decode(&whole[..length], "ConfigMap");
    }
    assert_eq!(
        decode(&whole[..whole.len() - 1], ""),
        Err(ProtobufError::Malformed)
    );
    assert_eq!(decode(b"", ""), Err(ProtobufError::Malformed));
}
