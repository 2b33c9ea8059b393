//! Defaults of one container (Kubernetes: `pkg/apis/core/v1/defaults.go`).

use serde_json::{Map, Value};

use super::fields::{default_nonzero, default_to, each, existing, object_in};

type Fields = Map<String, Value>;

/// Sets what the user left out of a container.
pub(super) fn default_container(container: &mut Fields) {
    let image = container
        .get("image")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let policy = pull_policy(image);
    default_to(container, "imagePullPolicy", policy);
    default_to(container, "terminationMessagePath", "/dev/termination-log");
    default_to(container, "terminationMessagePolicy", "File");
    object_in(container, "resources");
    for port in each(container, "ports") {
        default_to(port, "protocol", "TCP");
    }
    for variable in each(container, "env") {
        let Some(source) = existing(variable, "valueFrom") else {
            continue;
        };
        default_field_ref(source);
        default_divisor(source);
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = existing(container, probe) {
            default_probe(probe);
        }
    }
    if let Some(lifecycle) = existing(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = existing(lifecycle, hook) {
                default_http_get(hook);
            }
        }
    }
}

/// When an image is pulled of which nobody says when.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) {
        "Always"
    } else {
        "IfNotPresent"
    }
}

/// `resources.requests` that are missing are `resources.limits`.
pub(super) fn default_requests(container: &mut Fields) {
    let Some(resources) = existing(container, "resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let Some(requests) = object_in(resources, "requests") else {
        return;
    };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// `fieldRef.apiVersion`.
pub(super) fn default_field_ref(source: &mut Fields) {
    if let Some(field) = existing(source, "fieldRef") {
        default_to(field, "apiVersion", "v1");
    }
}

/// `resourceFieldRef.divisor`; zero means "the natural unit".
pub(super) fn default_divisor(source: &mut Fields) {
    if let Some(field) = existing(source, "resourceFieldRef") {
        default_to(field, "divisor", "0");
    }
}

fn default_probe(probe: &mut Fields) {
    default_nonzero(probe, "timeoutSeconds", 1);
    default_nonzero(probe, "periodSeconds", 10);
    default_nonzero(probe, "successThreshold", 1);
    default_nonzero(probe, "failureThreshold", 3);
    default_http_get(probe);
    if let Some(grpc) = existing(probe, "grpc") {
        default_to(grpc, "service", "");
    }
}

fn default_http_get(handler: &mut Fields) {
    if let Some(request) = existing(handler, "httpGet") {
        default_to(request, "path", "/");
        default_to(request, "scheme", "HTTP");
    }
}

/// Whether an image's tag is `latest`, which it is if there is neither a tag nor a digest.
fn is_latest(image: &str) -> bool {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to the registry's port.
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_and_untagged_images_are_always_pulled() {
        let cases = [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1.35", false),
            ("registry.local:5000/busybox", true),
            ("registry.local:5000/busybox:1.35", false),
            ("busybox@sha256:0123", false),
            ("busybox:latest@sha256:0123", true),
        ];
        for (image, always) in cases {
            assert_eq!(is_latest(image), always, "{image}");
        }
    }
}
