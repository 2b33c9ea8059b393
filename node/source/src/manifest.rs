//! From a manifest's text to a pod of this node.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use ring::digest::{Context, SHA256};
use serde_json::Value;
use swiftlet_model::sources::{CONFIG_HASH, CONFIG_SEEN, CONFIG_SOURCE, Source};

use crate::error::ManifestError;
use crate::{defaults, references, validate};

/// Bytes of the digest that make a uid: as many as a UUID has.
const UID_BYTES: usize = 16;

/// Where a manifest comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The kind of source.
    pub source: Source,
    /// Its path or URL.
    pub place: String,
    /// The node that runs its pods.
    pub node_name: String,
}

/// The pod of a manifest, as this node runs it: its name bears the node's, its uid is a digest of
/// manifest, node and place, its fields are defaulted and valid.
///
/// # Errors
/// The text is no manifest of one valid pod.
pub fn static_pod(text: &[u8], origin: &Origin, now: Timestamp) -> Result<Pod, ManifestError> {
    from_value(decode(text)?, origin, now)
}

/// The pods of a document that is one pod or a list of pods.
pub(crate) fn static_pods(
    text: &[u8],
    origin: &Origin,
    now: Timestamp,
) -> Result<Vec<Pod>, ManifestError> {
    let document = decode(text)?;
    if document["kind"] != "PodList" && document["kind"] != "List" {
        return Ok(vec![from_value(document, origin, now)?]);
    }
    let items = document["items"].as_array().cloned().unwrap_or_default();
    let pods = items.into_iter().map(|mut item| {
        // Items of a PodList may leave out what the list says.
        if let Some(fields) = item.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| "v1".into());
            fields.entry("kind").or_insert_with(|| "Pod".into());
        }
        from_value(item, origin, now)
    });
    pods.collect()
}

fn decode(text: &[u8]) -> Result<Value, ManifestError> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(ManifestError::Empty);
    }
    let syntax = |error: &dyn std::fmt::Display| ManifestError::Syntax(error.to_string());
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{') {
        return serde_json::from_slice(text).map_err(|error| syntax(&error));
    }
    let text = std::str::from_utf8(text).map_err(|error| syntax(&error))?;
    serde_saphyr::from_str(text).map_err(|error| syntax(&error))
}

fn from_value(manifest: Value, origin: &Origin, now: Timestamp) -> Result<Pod, ManifestError> {
    let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
    if (text("apiVersion").as_str(), text("kind").as_str()) != ("v1", "Pod") {
        let found = format!("{}/{}", text("apiVersion"), text("kind"));
        return Err(ManifestError::Kind { found });
    }
    // Before anything is added: another version of this program must not make another pod of it.
    let digest = uid(&manifest, origin);
    let mut pod: Pod = serde_json::from_value(manifest.clone())
        .map_err(|error| ManifestError::Type(error.to_string()))?;
    for field in unknown_fields(&manifest, &pod) {
        tracing::warn!(place = origin.place, field, "unknown field of a static pod");
    }
    complete(&mut pod, digest, origin, now);
    defaults::apply(&mut pod);
    if let Some(resource) = references::api_object(&pod) {
        return Err(ManifestError::Reference(resource));
    }
    let errors = validate::validate(&pod);
    if errors.is_empty() {
        Ok(pod)
    } else {
        Err(ManifestError::Invalid(errors))
    }
}

/// Who the pod is on this node (`applyDefaults` in `pkg/kubelet/config/common.go`).
fn complete(pod: &mut Pod, digest: String, origin: &Origin, now: Timestamp) {
    let meta = &mut pod.metadata;
    let uid = meta.uid.take().filter(|uid| !uid.is_empty());
    let uid = uid.unwrap_or(digest);
    let name = meta.name.take().unwrap_or_default();
    if !name.is_empty() {
        meta.name = Some(format!("{name}-{}", origin.node_name.to_lowercase()));
    }
    let namespace = meta.namespace.take().filter(|name| !name.is_empty());
    meta.namespace = Some(namespace.unwrap_or_else(|| "default".to_owned()));
    meta.creation_timestamp = None;
    meta.deletion_timestamp = None;
    meta.owner_references = None;
    meta.resource_version = None;
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SOURCE.to_owned(), origin.source.as_str().to_owned());
    annotations.insert(CONFIG_HASH.to_owned(), uid.clone());
    annotations.insert(CONFIG_SEEN.to_owned(), now.to_string());
    annotations.remove(swiftlet_model::sources::CONFIG_MIRROR);
    meta.uid = Some(uid);
    pod.spec.get_or_insert_default().node_name = Some(origin.node_name.clone());
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    });
}

/// A digest of what makes the pod: its manifest whatever its layout, its node, and its place.
fn uid(manifest: &Value, origin: &Origin) -> String {
    let mut context = Context::new(&SHA256);
    // The keys of a decoded object are in order.
    context.update(manifest.to_string().as_bytes());
    let place = match origin.source {
        Source::Http => format!("url:{}", origin.place),
        _ => format!("host:{}file:{}", origin.node_name, origin.place),
    };
    context.update(place.as_bytes());
    let digest = context.finish();
    let bytes = digest.as_ref().iter().take(UID_BYTES);
    bytes.fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Fields that were written and have no meaning: kubelet drops them without a word, which is how
/// a misspelt field goes unnoticed for long.
fn unknown_fields(manifest: &Value, pod: &Pod) -> Vec<String> {
    let known = serde_json::to_value(pod).unwrap_or_default();
    let mut unknown = Vec::new();
    compare(manifest, &known, String::new(), &mut unknown);
    unknown
}

fn compare(written: &Value, known: &Value, path: String, unknown: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written.iter().filter(|(_, value)| !is_nothing(value)) {
                let path = format!("{path}{}{key}", if path.is_empty() { "" } else { "." });
                match known.get(key) {
                    Some(known) => compare(value, known, path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (index, (written, known)) in written.iter().zip(known).enumerate() {
                compare(written, known, format!("{path}[{index}]"), unknown);
            }
        }
        _ => (),
    }
}

/// What the types leave out when they are written again.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_model::sources::{annotation, is_static};

    use super::*;

    const MANIFEST: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: etcd
  namespace: kube-system
  labels: {component: etcd}
spec:
  hostNetwork: true
  containers:
  - name: etcd
    image: registry.k8s.io/etcd:3.6.4-0
    ports: [{containerPort: 2379}]
    livenessProbe: {httpGet: {port: 2381}}
";

    fn origin(node: &str, place: &str) -> Origin {
        Origin {
            source: Source::File,
            place: place.into(),
            node_name: node.into(),
        }
    }

    fn read(text: &str, origin: &Origin) -> Result<Pod, ManifestError> {
        static_pod(text.as_bytes(), origin, Timestamp::UNIX_EPOCH)
    }

    fn uid_of(text: &str, origin: &Origin) -> String {
        read(text, origin)
            .expect("a pod")
            .metadata
            .uid
            .expect("uid")
    }

    #[test]
    fn a_manifest_becomes_a_pod_of_this_node_with_all_defaults() {
        let pod = read(MANIFEST, &origin("Node-1", "/m/etcd.yaml")).expect("a pod");
        assert_eq!(pod.metadata.name.as_deref(), Some("etcd-node-1"));
        assert!(is_static(&pod));
        assert_eq!(annotation(&pod, CONFIG_SOURCE), Some("file"));
        assert_eq!(annotation(&pod, CONFIG_HASH), pod.metadata.uid.as_deref());
        let spec = pod.spec.expect("spec");
        assert_eq!(spec.node_name.as_deref(), Some("Node-1"));
        assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
        assert_eq!(spec.termination_grace_period_seconds, Some(30));
        let tolerations = spec.tolerations.expect("tolerations");
        assert_eq!(tolerations[0].operator.as_deref(), Some("Exists"));
        assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));
        let container = &spec.containers[0];
        assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
        let port = &container.ports.as_ref().expect("ports")[0];
        assert_eq!(
            (port.host_port, port.protocol.as_deref()),
            (Some(2379), Some("TCP"))
        );
        let probe = container.liveness_probe.as_ref().expect("probe");
        assert_eq!(
            (probe.period_seconds, probe.failure_threshold),
            (Some(10), Some(3))
        );
    }

    #[test]
    fn the_uid_depends_on_content_node_and_place_and_not_on_layout() {
        let here = origin("n1", "/m/etcd.yaml");
        let first = uid_of(MANIFEST, &here);
        assert_eq!(first.len(), 2 * UID_BYTES);
        let relaid = MANIFEST.replace("{component: etcd}", "\n    component: etcd # comment");
        assert_eq!(uid_of(&relaid, &here), first);
        let json = decode(MANIFEST.as_bytes()).expect("yaml").to_string();
        assert_eq!(
            uid_of(&json, &here),
            first,
            "JSON and YAML are the same pod"
        );
        let changed = MANIFEST.replace("3.6.4-0", "3.6.5-0");
        for (text, origin) in [
            (changed.as_str(), here),
            (MANIFEST, origin("n2", "/m/etcd.yaml")),
            (MANIFEST, origin("n1", "/m/other.yaml")),
        ] {
            assert_ne!(uid_of(text, &origin), first);
        }
    }

    #[test]
    fn what_is_no_single_valid_pod_is_refused_with_the_reason() {
        let refusals = [
            ("", "is empty"),
            ("a: [", "is no JSON or YAML document"),
            (
                "apiVersion: apps/v1\nkind: Deployment",
                "is apps/v1/Deployment, not a v1 Pod",
            ),
            (
                "apiVersion: v1\nkind: PodList\nitems: []",
                "is v1/PodList, not a v1 Pod",
            ),
            (
                "apiVersion: v1\nkind: Pod\nspec: {containers: 3}",
                "is no pod: ",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}",
                "spec.containers: Required value",
            ),
        ];
        for (text, reason) in refusals {
            let error = read(text, &origin("n", "/m/x"))
                .expect_err(text)
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_field_that_does_not_exist_is_found() {
        let text = MANIFEST.replace("hostNetwork", "hostNetwrk");
        let manifest = decode(text.as_bytes()).expect("yaml");
        let pod: Pod = serde_json::from_value(manifest.clone()).expect("pod");
        assert_eq!(unknown_fields(&manifest, &pod), ["spec.hostNetwrk"]);
    }

    #[test]
    fn a_document_may_be_a_list() {
        let item = decode(MANIFEST.as_bytes()).expect("yaml");
        let list = serde_json::json!({"apiVersion": "v1", "kind": "PodList", "items": [item]});
        let http = Origin {
            source: Source::Http,
            ..origin("n1", "http://x/")
        };
        let now = Timestamp::UNIX_EPOCH;
        let pods = static_pods(list.to_string().as_bytes(), &http, now).expect("pods");
        assert_eq!(annotation(&pods[0], CONFIG_SOURCE), Some("http"));
    }
}
