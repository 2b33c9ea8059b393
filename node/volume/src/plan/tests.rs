//! What becomes of the volumes of a pod's object.

use serde_json::json;

use super::*;

fn pod(spec: &serde_json::Value) -> Pod {
    let pod = json!({"metadata": {"namespace": "default"}, "spec": spec});
    serde_json::from_value(pod).unwrap()
}

fn one(volume: &serde_json::Value) -> Result<Plan, VolumeError> {
    let pod = pod(&json!({"containers": [], "volumes": [volume]}));
    volumes(&pod, &Amounts::default()).map(|mut all| all.remove(0))
}

#[test]
fn a_kind_that_is_not_served_is_named() {
    for (volume, kind) in [
        (json!({"name": "v", "csi": {"driver": "x"}}), "csi"),
        (json!({"name": "v", "ephemeral": {}}), "ephemeral"),
        (json!({"name": "v", "image": {"reference": "x"}}), "image"),
        (
            json!({"name": "v", "nfs": {"server": "x", "path": "/"}}),
            "nfs",
        ),
        (
            json!({"name": "v", "emptyDir": {"medium": "Tape"}}),
            "emptyDir of medium Tape",
        ),
        (
            json!({"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}),
            "projected clusterTrustBundle",
        ),
    ] {
        let expected = format!("volume \"v\": {kind} volumes are not served by this node");
        assert_eq!(one(&volume).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_volume_in_memory_holds_what_it_may_and_no_more_than_its_pod() {
    let size = |limit: Option<&str>, first: Option<&str>, memory_bytes: i64| {
        let memory = |limit: &str| json!({"limits": {"memory": limit}});
        let pod = pod(&json!({
            "containers": [
                {"name": "a", "resources": first.map(memory)},
                {"name": "b", "resources": memory("32Mi")},
            ],
            "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": limit}}],
        }));
        let amounts = Amounts {
            memory_bytes,
            ..Amounts::default()
        };
        match volumes(&pod, &amounts).unwrap().remove(0).kind {
            Kind::EmptyDir { size_bytes, .. } => size_bytes.map(|bytes| bytes >> 20),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(size(Some("64Mi"), None, 0), Some(64));
    assert_eq!(size(Some("0"), None, 0), None);
    assert_eq!(size(Some("64Mi"), None, 16 << 20), Some(16));
    assert_eq!(size(None, Some("8Mi"), 1 << 40), Some(40));
    assert_eq!(size(Some("64Mi"), Some("8Mi"), 1 << 40), Some(40));
}

#[test]
fn a_name_never_leads_out_of_the_pods_folder() {
    for name in ["", "..", "../x", "a/b"] {
        assert!(
            one(&json!({"name": name, "emptyDir": {}})).is_err(),
            "{name}"
        );
    }
}

#[test]
fn containers_have_one_user_or_none() {
    let user = |of_pod: Option<i64>, first: Option<i64>, second: Option<i64>| {
        fs_user(&pod(&json!({
            "securityContext": {"runAsUser": of_pod},
            "initContainers": [{"name": "i", "securityContext": {"runAsUser": first}}],
            "containers": [{"name": "c", "securityContext": {"runAsUser": second}}],
        })))
    };
    assert_eq!(user(Some(7), None, None), Some(7));
    assert_eq!(user(None, Some(7), Some(7)), Some(7));
    assert_eq!(user(Some(7), Some(8), None), None);
    assert_eq!(user(None, Some(7), None), None);
}

#[test]
fn huge_pages_are_of_the_size_that_the_pod_requests() {
    let size = |medium: &str, requested: &[&str]| {
        let requests: std::collections::BTreeMap<_, _> = requested
            .iter()
            .map(|size| (format!("hugepages-{size}"), "4Mi"))
            .collect();
        let pod = pod(&json!({
            "containers": [{"name": "a", "resources": {"requests": requests}}],
            "volumes": [{"name": "v", "emptyDir": {"medium": medium}}],
        }));
        volumes(&pod, &Amounts::default()).map(|mut all| match all.remove(0).kind {
            Kind::EmptyDir { medium, .. } => medium,
            other => panic!("{other:?}"),
        })
    };
    let of = |size: &str| Medium::HugePages(size.to_owned());
    assert_eq!(size("HugePages", &["2Mi"]).unwrap(), of("2Mi"));
    assert_eq!(size("HugePages-1Gi", &["1Gi", "2Mi"]).unwrap(), of("1Gi"));
    assert!(size("HugePages", &["1Gi", "2Mi"]).is_err());
    assert!(size("HugePages", &[]).is_err());
    assert!(size("HugePages-1Gi", &["2Mi"]).is_err());
}
