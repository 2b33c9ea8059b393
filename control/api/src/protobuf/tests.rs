use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn number(value: u64) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), value);
    while rest >= 0x80 {
        bytes.push(0x80 | u8::try_from(rest & 0x7f).unwrap());
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

/// A field of bytes: a text or message.
fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    let length = number(u64::try_from(value.len()).unwrap());
    [number(field << 3 | 2), length, value.to_vec()].concat()
}

fn varint(field: u64, value: i64) -> Vec<u8> {
    [number(field << 3), number(value.cast_unsigned())].concat()
}

fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
}

fn decoded(kind: &str, raw: &[u8]) -> Result<Value, ProtobufError> {
    let mut object = decode(&enveloped("v1", kind, raw), "")?;
    let fields = object.as_object_mut().unwrap();
    assert_eq!(fields.remove("kind"), Some(kind.into()));
    assert_eq!(fields.remove("apiVersion"), Some("v1".into()));
    Ok(object)
}

#[test]
fn a_config_map_becomes_the_json_that_its_client_meant() {
    let metadata = [bytes(1, b"cm"), bytes(2, b""), varint(7, 0), bytes(8, b"")].concat();
    let pair = [bytes(1, b"a"), bytes(2, b"b")].concat();
    let empty = bytes(1, b"e");
    let binary = [bytes(1, b"x"), bytes(2, b"\xff\x00")].concat();
    let raw = [
        bytes(1, &metadata),
        bytes(2, &pair),
        bytes(2, &empty),
        bytes(3, &binary),
    ]
    .concat();
    let wanted = json!({
        "metadata": { "name": "cm", "creationTimestamp": null },
        "data": { "a": "b", "e": "" },
        "binaryData": { "x": "/wA=" },
    });
    assert_eq!(decoded("ConfigMap", &raw), Ok(wanted));
}

/// What kubectl 1.33 sends for `create deployment web --image=busybox:1 --replicas=0 --port=80`.
const DEPLOYMENT: &str = "\
    azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50Er4BCh8KA3dlYhIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViEowBCA\
    ASDAoKCgNhcHASA3dlYhpyChwKABIAGgAiACoAMgA4AEIAWgoKA2FwcBIDd2ViElISNAoHYnVzeWJveBIJYnVzeWJv\
    eDoxKgAyCgoAEAAYUCIAKgBCAGoAcgCAAQCIAQCQAQCiAQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIgIKAC\
    gAOAAaDAgAEAAYACAAKAA4ABoAIgA=";

#[test]
fn a_deployment_of_kubectl_becomes_what_an_older_kubectl_sends_as_json() {
    let body = STANDARD.decode(DEPLOYMENT).unwrap();
    let labels = json!({ "app": "web" });
    let wanted = json!({
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": { "name": "web", "creationTimestamp": null, "labels": labels },
        "spec": {
            "replicas": 0,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "creationTimestamp": null, "labels": labels },
                "spec": { "containers": [{
                    "name": "busybox",
                    "image": "busybox:1",
                    "ports": [{ "containerPort": 80 }],
                    "resources": {},
                }] },
            },
            "strategy": {},
        },
        "status": {},
    });
    assert_eq!(decode(&body, ""), Ok(wanted));
}

#[test]
fn a_body_without_a_type_has_the_kind_of_its_path() {
    let body = [MAGIC.to_vec(), bytes(2, &bytes(1, &bytes(1, b"x")))].concat();
    let wanted = json!({ "kind": "Secret", "metadata": { "name": "x" } });
    assert_eq!(decode(&body, "Secret"), Ok(wanted));
}

#[test]
fn zero_is_kept_where_json_clients_write_it() {
    // Replicas are a pointer, minReadySeconds and paused are not; structs are always there.
    let spec = [
        varint(1, 0),
        bytes(4, &bytes(1, b"")),
        varint(5, 0),
        varint(7, 0),
    ]
    .concat();
    let raw = [bytes(2, &spec), bytes(3, &varint(1, 0))].concat();
    let wanted = json!({ "spec": { "replicas": 0, "strategy": {} }, "status": {} });
    assert_eq!(decoded("Deployment", &raw), Ok(wanted));
    let status = [bytes(1, b"c"), varint(4, 0), varint(5, 0), varint(9, 0)].concat();
    let raw = bytes(3, &bytes(8, &status));
    let wanted = json!({ "name": "c", "ready": false, "restartCount": 0, "started": false });
    assert_eq!(
        decoded("Pod", &raw).unwrap()["status"]["containerStatuses"][0],
        wanted
    );
}

#[test]
fn fields_of_embedded_messages_belong_to_their_parent() {
    let volume = [bytes(1, b"v"), bytes(2, &bytes(2, &bytes(1, b"Memory")))].concat();
    let probe = [bytes(1, &bytes(3, &bytes(1, &varint(2, 80)))), varint(2, 5)].concat();
    let raw = bytes(
        2,
        &[bytes(1, &volume), bytes(2, &bytes(10, &probe))].concat(),
    );
    let wanted = json!({
        "volumes": [{ "name": "v", "emptyDir": { "medium": "Memory" } }],
        "containers": [{ "livenessProbe": {
            "tcpSocket": { "port": 80 }, "initialDelaySeconds": 5,
        } }],
    });
    assert_eq!(decoded("Pod", &raw).unwrap()["spec"], wanted);
}

#[test]
fn numbers_and_texts_of_ports_are_told_apart() {
    let update = |value: &[u8]| bytes(2, &bytes(4, &bytes(2, &bytes(1, value))));
    let unavailable = |value: &[u8]| {
        let object = decoded("Deployment", &update(value)).unwrap();
        object["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"].clone()
    };
    assert_eq!(
        unavailable(&[varint(1, 0), varint(2, -3), bytes(3, b"")].concat()),
        -3
    );
    assert_eq!(
        unavailable(&[varint(1, 1), varint(2, 0), bytes(3, b"25%")].concat()),
        "25%"
    );
    assert_eq!(unavailable(b""), 0);
}

#[test]
fn times_and_micro_times_are_written_in_their_own_forms() {
    let time = [varint(1, 1_700_000_000), varint(2, 123_456_789)].concat();
    let raw = [bytes(6, &time), bytes(7, b""), bytes(10, &time)].concat();
    let event = decoded("Event", &raw).unwrap();
    assert_eq!(event["firstTimestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(event["lastTimestamp"], Value::Null);
    assert_eq!(event["eventTime"], "2023-11-14T22:13:20.123456Z");
    let negative = decoded("Event", &bytes(6, &varint(1, -1))).unwrap();
    assert_eq!(negative["firstTimestamp"], "1969-12-31T23:59:59Z");
    let wrong = decoded("Event", &bytes(6, &varint(1, i64::MAX))).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "cannot read Event.firstTimestamp: not a time"
    );
}

#[test]
fn quantities_managed_fields_and_preconditions_are_read() {
    let memory = [bytes(1, b"memory"), bytes(2, &bytes(1, b"1Gi"))].concat();
    let node = decoded("Node", &bytes(3, &bytes(1, &memory))).unwrap();
    assert_eq!(node["status"]["capacity"], json!({ "memory": "1Gi" }));
    let managed = bytes(7, &bytes(1, br#"{"f:spec":{}}"#));
    let lease = decoded("Lease", &bytes(1, &bytes(17, &managed))).unwrap();
    let fields = &lease["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*fields, json!({ "f:spec": {} }));
    let preconditions = [bytes(1, b"u"), bytes(2, b"7")].concat();
    let raw = [
        varint(1, 0),
        bytes(2, &preconditions),
        bytes(4, b"Orphan"),
        bytes(5, b"All"),
    ];
    let wanted = json!({
        "gracePeriodSeconds": 0,
        "preconditions": { "uid": "u", "resourceVersion": "7" },
        "propagationPolicy": "Orphan",
        "dryRun": ["All"],
    });
    assert_eq!(decoded("DeleteOptions", &raw.concat()), Ok(wanted));
}

#[test]
fn repeated_numbers_may_be_packed() {
    let single = [varint(4, 1), varint(4, 300)].concat();
    let packed = bytes(4, &[number(1), number(300)].concat());
    for groups in [single, packed] {
        let pod = decoded("Pod", &bytes(2, &bytes(14, &groups))).unwrap();
        assert_eq!(
            pod["spec"]["securityContext"]["supplementalGroups"],
            json!([1, 300])
        );
    }
}

#[test]
fn the_last_value_counts_and_messages_are_merged() {
    let first = bytes(1, &[bytes(1, b"a"), bytes(3, b"n")].concat());
    let second = bytes(1, &[bytes(1, b"b"), bytes(3, b"")].concat());
    let wanted = json!({ "metadata": { "name": "b" } });
    assert_eq!(decoded("ConfigMap", &[first, second].concat()), Ok(wanted));
}

#[test]
fn fields_of_newer_clients_are_skipped_whatever_their_type() {
    let newer = [
        varint(1000, 1),
        bytes(1001, b"\xff"),
        [number(1002 << 3 | 1), vec![0; 8]].concat(),
        [number(1003 << 3 | 5), vec![0; 4]].concat(),
    ];
    let raw = [newer.concat(), bytes(1, &bytes(1, b"cm"))].concat();
    assert_eq!(
        decoded("ConfigMap", &raw),
        Ok(json!({ "metadata": { "name": "cm" } }))
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let refused = |kind: &str, raw: &[u8]| decoded(kind, raw).unwrap_err().to_string();
    let wrong_type = bytes(1, &varint(1, 1));
    assert_eq!(
        refused("ConfigMap", &wrong_type),
        "cannot read ObjectMeta.name: wrong wire type"
    );
    let not_text = bytes(1, &bytes(1, b"\xff"));
    assert_eq!(
        refused("ConfigMap", &not_text),
        "cannot read ObjectMeta.name: not a text in UTF-8"
    );
    assert_eq!(
        refused("Pod", &[0x0b]),
        "cannot read the fields of Pod: illegal tag 11"
    );
    assert_eq!(
        refused("Pod", &[0xff; 11]),
        "cannot read the fields of Pod: a number is too long"
    );
    assert_eq!(
        refused("Endpoints", b""),
        "no kind \"Endpoints\" is registered for version \"v1\""
    );
    let zipped = [enveloped("v1", "Pod", b""), bytes(3, b"gzip")].concat();
    assert_eq!(
        decode(&zipped, "Pod"),
        Err(ProtobufError::Encoded("gzip".into()))
    );
    assert_eq!(decode(b"{}", "Pod"), Err(ProtobufError::NoPrefix));
    assert_eq!(decode(b"", "Pod"), Err(ProtobufError::NoPrefix));
}

#[test]
fn what_is_cut_off_is_refused() {
    let whole = enveloped("v1", "ConfigMap", &bytes(1, &bytes(1, b"cm")));
    let envelope = MAGIC.len() + 2 + 2 + "v1".len() + 2 + "ConfigMap".len();
    for length in envelope + 1..whole.len() {
        assert!(decode(&whole[..length], "ConfigMap").is_err(), "{length}");
    }
}

/// Bytes that are a message in a message in a message, as deep as they are long.
fn bomb(field: u64) -> Vec<u8> {
    let mut inner = Vec::new();
    while inner.len() < 64 * 1024 {
        inner = bytes(field, &inner);
    }
    inner
}

#[test]
fn bombs_of_depth_are_answered_at_once() {
    let start = Instant::now();
    for field in 1..40 {
        let bomb = bomb(field);
        for kind in ["Pod", "Deployment", "Node", "Event", "DeleteOptions"] {
            let _ = decoded(kind, &bomb);
        }
    }
    let lists = "[".repeat(100_000);
    let managed = bytes(7, &bytes(1, lists.as_bytes()));
    let refused = decoded("Lease", &bytes(1, &bytes(17, &managed))).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "cannot read ManagedFieldsEntry.fieldsV1: not JSON"
    );
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// Bytes that are close to a message: fields of low numbers, within each other.
fn nearly_a_message() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..12),
        (1..20_u64, any::<i64>()).prop_map(|(field, value)| varint(field, value)),
        (1..20_u64, "[a-z0-9{}]{0,6}").prop_map(|(field, text)| bytes(field, text.as_bytes())),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let field = (1..42_u64, inner).prop_map(|(field, inner)| bytes(field, &inner));
        proptest::collection::vec(field, 1..6).prop_map(|fields| fields.concat())
    })
}

fn kinds() -> impl Strategy<Value = &'static str> {
    let kinds = crate::strategy::registry()
        .iter()
        .map(|resource| resource.kind);
    let beside = ["Binding", "Scale", "DeleteOptions"];
    proptest::sample::select(kinds.chain(beside).collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..256), kind in kinds()) {
        let _ = decode(&body, kind);
        let _ = decode(&[MAGIC, &body].concat(), kind);
        let _ = decode(&enveloped("v1", kind, &body), "");
    }

    #[test]
    fn nothing_that_is_close_to_a_message_panics(raw in nearly_a_message(), kind in kinds()) {
        if let Ok(object) = decoded(kind, &raw) {
            prop_assert!(object.is_object());
        }
    }

    #[test]
    fn every_number_comes_through(value in any::<i64>()) {
        let scale = decoded("DeleteOptions", &varint(1, value)).unwrap();
        prop_assert_eq!(scale, json!({ "gracePeriodSeconds": value }));
    }

    #[test]
    fn every_secret_comes_through(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        let pair = [bytes(1, b"k"), bytes(2, &data)].concat();
        let secret = decoded("Secret", &bytes(2, &pair)).unwrap();
        let text = secret["data"]["k"].as_str().unwrap();
        prop_assert_eq!(STANDARD.decode(text).unwrap(), data);
    }
}
