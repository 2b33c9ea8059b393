//! Files of all sources.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::plan::{Kind, volumes};

/// The payload of the pod's first volume; `fetched` as for its sources.
fn build(pod: &serde_json::Value, fetched: &[Fetched]) -> Result<Payload, VolumeError> {
    let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
    let amounts = Amounts {
        cpu_milli: 4000,
        memory_bytes: 1 << 30,
        ephemeral_storage_bytes: 1 << 34,
    };
    let plan = volumes(&pod, &amounts).unwrap().remove(0);
    let Kind::Files(files) = plan.kind else {
        panic!("{plan:?}");
    };
    payload(&plan.name, &files, fetched, &pod, &amounts)
}

fn pod(volume: &serde_json::Value) -> serde_json::Value {
    json!({
        "metadata": {
            "name": "web", "namespace": "default", "uid": "7",
            "labels": {"app": "web", "b": "say \"hi\""}, "annotations": {"k": "v"},
        },
        "spec": {
            "containers": [{"name": "main", "resources": {
                "limits": {"cpu": "1500m"}, "requests": {"memory": "100Mi"},
            }}],
            "volumes": [volume],
        },
    })
}

fn object(keys: &[&str]) -> Fetched {
    let bytes = |&key: &&str| (key.to_owned(), key.as_bytes().to_vec());
    Fetched::Object(Some(Arc::new(keys.iter().map(bytes).collect())))
}

fn text(payload: &Payload, path: &str) -> String {
    String::from_utf8(payload[path].content.clone()).unwrap()
}

#[test]
fn items_choose_keys_paths_and_modes() {
    let volume = json!({"name": "v", "configMap": {"name": "cm", "items": [
        {"key": "a", "path": "deep/a.txt", "mode": 0o400}, {"key": "b", "path": "b.txt"},
    ]}});
    let payload = build(&pod(&volume), &[object(&["a", "b", "c"])]).unwrap();
    assert_eq!(payload.keys().collect::<Vec<_>>(), ["b.txt", "deep/a.txt"]);
    assert_eq!(payload["deep/a.txt"].mode, 0o400);
    assert_eq!(payload["b.txt"].mode, 0o644);
}

#[test]
fn a_missing_key_is_an_error_unless_optional() {
    let volume = |optional: bool| {
        json!({"name": "v", "secret": {"secretName": "s", "optional": optional,
            "items": [{"key": "gone", "path": "x"}]}})
    };
    let error = build(&pod(&volume(false)), &[object(&["a"])]).unwrap_err();
    let words = "MountVolume.SetUp failed for volume \"v\" : \
                 references non-existent secret key: gone";
    assert_eq!(error.to_string(), words);
    let lax = pod(&volume(true));
    assert!(build(&lax, &[object(&["a"])]).unwrap().is_empty());
    assert!(build(&lax, &[Fetched::Object(None)]).unwrap().is_empty());
}

#[test]
fn a_projected_volume_has_the_files_of_all_its_sources_and_the_last_of_two() {
    let volume = json!({"name": "v", "projected": {"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "cm"}},
        {"secret": {"name": "s", "items": [{"key": "k", "path": "a"}]}},
        {"downwardAPI": {"items": [
            {"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}},
        ]}},
        {"serviceAccountToken": {"path": "token"}},
    ]}});
    let token = Fetched::Token("a.b.c".into());
    let fetched = [object(&["a"]), object(&["k"]), Fetched::Nothing, token];
    let payload = build(&pod(&volume), &fetched).unwrap();
    assert_eq!(text(&payload, "a"), "k");
    assert_eq!(text(&payload, "ns"), "default");
    assert_eq!(text(&payload, "token"), "a.b.c");
    assert!(payload.values().all(|file| file.mode == 0o440));
}

#[test]
fn a_token_is_for_the_pods_user_or_group_alone() {
    let look = |context: &serde_json::Value| {
        let volume = json!({"name": "v", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token"}},
        ]}});
        let mut pod = pod(&volume);
        pod["spec"]["securityContext"] = context.clone();
        let payload = build(&pod, &[Fetched::Token("t".into())]).unwrap();
        (payload["token"].mode, payload["token"].owner)
    };
    assert_eq!(look(&json!({})), (0o644, None));
    assert_eq!(look(&json!({"runAsUser": 1000})), (0o600, Some(1000)));
    assert_eq!(look(&json!({"fsGroup": 2000})), (0o600, None));
}

#[test]
fn the_pod_tells_of_itself() {
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let amount = |path: &str, resource: &str, divisor: &str| {
        json!({"path": path, "resourceFieldRef": {
            "containerName": "main", "resource": resource, "divisor": divisor,
        }})
    };
    let volume = json!({"name": "v", "downwardAPI": {"items": [
        field("name", "metadata.name"),
        field("labels", "metadata.labels"),
        field("one", "metadata.labels['app']"),
        field("none", "metadata.annotations['missing']"),
        amount("cpu", "limits.cpu", "0"),
        amount("cpu_milli", "limits.cpu", "1m"),
        amount("memory", "limits.memory", "1Mi"),
        amount("request", "requests.memory", "1Ki"),
        amount("request_cpu", "requests.cpu", "1"),
    ]}});
    let payload = build(&pod(&volume), &[Fetched::Nothing]).unwrap();
    for (path, expected) in [
        ("name", "web"),
        ("labels", "app=\"web\"\nb=\"say \\\"hi\\\"\""),
        ("one", "web"),
        ("none", ""),
        ("cpu", "2"),
        ("cpu_milli", "1500"),
        ("memory", "1024"),
        ("request", "102400"),
        ("request_cpu", "0"),
    ] {
        assert_eq!(text(&payload, path), expected, "{path}");
    }
}

#[test]
fn what_the_pod_cannot_tell_is_named() {
    for (item, words) in [
        (
            json!({"path": "x", "fieldRef": {"fieldPath": "status.podIP"}}),
            "unsupported fieldPath: status.podIP",
        ),
        (
            json!({"path": "x", "resourceFieldRef":
                {"containerName": "x", "resource": "limits.cpu"}}),
            "container x not found",
        ),
        (
            json!({"path": "../x", "fieldRef": {"fieldPath": "metadata.uid"}}),
            "\"..\"",
        ),
    ] {
        let volume = json!({"name": "v", "downwardAPI": {"items": [item]}});
        let error = build(&pod(&volume), &[Fetched::Nothing]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn no_path_leads_out_of_the_volume() {
    let bad = [
        "",
        "/etc/passwd",
        "../x",
        "a/../../x",
        "..data",
        "a//b",
        "a/.",
        "a/",
        "x\0",
    ];
    for path in bad {
        assert!(check(path).is_err(), "{path:?}");
    }
    for path in ["a", "a/b", ".hidden", "a/..b", "a..b"] {
        assert!(check(path).is_ok(), "{path:?}");
    }
}

proptest! {
    #[test]
    fn a_path_that_passes_stays_below_its_volume(path in "[./a]{0,12}") {
        if check(&path).is_ok() {
            let mut depth = 0;
            for part in std::path::Path::new(&path).components() {
                match part {
                    std::path::Component::Normal(_) => depth += 1,
                    other => prop_assert!(false, "{other:?}"),
                }
            }
            prop_assert!(depth > 0);
        }
    }
}
