//! Defaults of a pod's specification, alone or in a template.

use serde_json::{Map, Value, json};

use super::container_defaults::{
    default_container, default_divisor, default_field_ref, default_requests, pull_policy,
};
use super::fields::{default_to, each, existing, object_in};
use super::pod_level_defaults::default_pod_requests;

type Fields = Map<String, Value>;

/// `defaultMode` of volumes that are written as files: 0644.
const DEFAULT_MODE: i64 = 0o644;
/// How long a projected service account token lives.
const TOKEN_EXPIRATION_S: i64 = 3600;
/// How long a pod stays on a node that is not ready (admission plugin `DefaultTolerationSeconds`).
const TOLERATION_S: i64 = 300;

/// The lists of containers in a pod's specification.
pub(super) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// Defaults that pods and templates share.
pub(super) fn default_pod_spec(spec: &mut Fields) {
    default_to(spec, "restartPolicy", "Always");
    default_to(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "schedulerName", "default-scheduler");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    object_in(spec, "securityContext");
    // The two names of one field.
    let account = ["serviceAccountName", "serviceAccount"]
        .into_iter()
        .find_map(|key| spec.get(key)?.as_str().filter(|name| !name.is_empty()))
        .map(str::to_owned);
    if let Some(account) = account {
        spec.insert("serviceAccount".into(), account.clone().into());
        spec.insert("serviceAccountName".into(), account.into());
    }
    for volume in each(spec, "volumes") {
        default_volume(volume);
    }
    let host_network = spec
        .get("hostNetwork")
        .and_then(Value::as_bool)
        .unwrap_or_default();
    for list in CONTAINER_LISTS {
        for container in each(spec, list) {
            default_container(container);
            if host_network && list != "ephemeralContainers" {
                default_host_ports(container);
            }
        }
    }
}

/// Defaults of pods alone, those of `DefaultTolerationSeconds` included.
pub(super) fn default_pod(spec: &mut Fields) {
    default_pod_spec(spec);
    default_to(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            default_requests(container);
        }
    }
    default_pod_requests(spec);
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        tolerate(spec, key);
    }
}

/// Tolerates a taint for a while, unless the user said something about it.
fn tolerate(spec: &mut Fields, key: &str) {
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    if tolerations.is_null() {
        *tolerations = json!([]);
    }
    let Some(tolerations) = tolerations.as_array_mut() else {
        return;
    };
    let mentioned = tolerations.iter().any(|toleration| {
        let text = |field| {
            toleration
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        (text("key") == key || text("key").is_empty())
            && (text("effect") == "NoExecute" || text("effect").is_empty())
    });
    if !mentioned {
        tolerations.push(json!({
            "key": key,
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": TOLERATION_S,
        }));
    }
}

/// A port in the host's network is the host's port.
fn default_host_ports(container: &mut Fields) {
    for port in each(container, "ports") {
        if let Some(number) = port.get("containerPort").cloned() {
            default_to(port, "hostPort", number);
        }
    }
}

fn default_volume(volume: &mut Fields) {
    if !volume
        .iter()
        .any(|(key, value)| key != "name" && !value.is_null())
    {
        volume.insert("emptyDir".into(), json!({}));
    }
    if let Some(source) = existing(volume, "hostPath")
        && source.get("type").is_none_or(Value::is_null)
    {
        source.insert("type".into(), "".into());
    }
    if let Some(image) = existing(volume, "image") {
        let reference = image.get("reference").and_then(Value::as_str);
        let policy = pull_policy(reference.unwrap_or_default());
        default_to(image, "pullPolicy", policy);
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = existing(volume, kind) else {
            continue;
        };
        default_to(source, "defaultMode", DEFAULT_MODE);
        default_downward_items(source);
        for part in each(source, "sources") {
            if let Some(token) = existing(part, "serviceAccountToken") {
                default_to(token, "expirationSeconds", TOKEN_EXPIRATION_S);
            }
            if let Some(downward) = existing(part, "downwardAPI") {
                default_downward_items(downward);
            }
        }
    }
}

fn default_downward_items(source: &mut Fields) {
    for item in each(source, "items") {
        default_field_ref(item);
        default_divisor(item);
    }
}
