//! The rules of the API that a static pod must keep, so that a mistake is named in the log and not
//! found out by a container that does not start (`pkg/apis/core/validation/validation.go`).

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

/// Longest DNS label and DNS subdomain (RFC 1123).
const LABEL_LEN_MAX: usize = 63;
const SUBDOMAIN_LEN_MAX: usize = 253;
/// Longest uid: with a namespace and a name it makes the name of a folder.
const UID_LEN_MAX: usize = 63;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// What is wrong with a pod; empty if nothing is.
pub(crate) fn validate(pod: &Pod) -> Vec<String> {
    let mut errors = Vec::new();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    if name.is_empty() {
        errors.push("metadata.name: Required value".to_owned());
    } else if !is_subdomain(name) {
        errors.push(format!("metadata.name: Invalid value: \"{name}\""));
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if !is_label(namespace) {
        errors.push(format!(
            "metadata.namespace: Invalid value: \"{namespace}\""
        ));
    }
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if !is_uid(uid) {
        errors.push(format!("metadata.uid: Invalid value: \"{uid}\""));
    }
    if let Some(spec) = &pod.spec {
        check_spec(spec, &mut errors);
    }
    errors
}

fn check_spec(spec: &PodSpec, errors: &mut Vec<String>) {
    let mut one_of = |field: &str, value: &Option<String>, allowed: &[&str]| {
        let value = value.as_deref().unwrap_or_default();
        if !allowed.contains(&value) {
            let allowed = allowed.join(", ");
            errors.push(format!(
                "{field}: Unsupported value: \"{value}\": supported: {allowed}"
            ));
        }
    };
    one_of(
        "spec.restartPolicy",
        &spec.restart_policy,
        &RESTART_POLICIES,
    );
    one_of("spec.dnsPolicy", &spec.dns_policy, &DNS_POLICIES);
    if spec
        .termination_grace_period_seconds
        .is_some_and(|grace| grace < 0)
    {
        errors.push("spec.terminationGracePeriodSeconds: must not be negative".to_owned());
    }
    if spec
        .active_deadline_seconds
        .is_some_and(|seconds| seconds < 1)
    {
        errors.push("spec.activeDeadlineSeconds: must be at least 1".to_owned());
    }
    if spec.ephemeral_containers.iter().flatten().next().is_some() {
        errors.push("spec.ephemeralContainers: cannot be set on create".to_owned());
    }
    let mut volumes = HashSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = format!("spec.volumes[{index}].name");
        check_name(&field, &volume.name, &mut volumes, errors);
    }
    if spec.containers.is_empty() {
        errors.push("spec.containers: Required value".to_owned());
    }
    let mut names = HashSet::new();
    let inits = spec.init_containers.iter().flatten().enumerate();
    let mains = spec.containers.iter().enumerate();
    let inits = inits.map(|(index, one)| (format!("spec.initContainers[{index}]"), one));
    let mains = mains.map(|(index, one)| (format!("spec.containers[{index}]"), one));
    for (field, container) in inits.chain(mains) {
        check_name(
            &format!("{field}.name"),
            &container.name,
            &mut names,
            errors,
        );
        check_container(&field, container, &volumes, errors);
    }
}

fn check_name<'a>(
    field: &str,
    name: &'a str,
    names: &mut HashSet<&'a str>,
    errors: &mut Vec<String>,
) {
    if !is_label(name) {
        errors.push(format!("{field}: Invalid value: \"{name}\""));
    } else if !names.insert(name) {
        errors.push(format!("{field}: Duplicate value: \"{name}\""));
    }
}

fn check_container(
    field: &str,
    container: &Container,
    volumes: &HashSet<&str>,
    errors: &mut Vec<String>,
) {
    if container.image.as_deref().is_none_or(str::is_empty) {
        errors.push(format!("{field}.image: Required value"));
    }
    let policy = container.image_pull_policy.as_deref().unwrap_or_default();
    if !PULL_POLICIES.contains(&policy) {
        errors.push(format!(
            "{field}.imagePullPolicy: Unsupported value: \"{policy}\""
        ));
    }
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if !volumes.contains(mount.name.as_str()) {
            let name = &mount.name;
            errors.push(format!(
                "{field}.volumeMounts[{index}].name: Not found: \"{name}\""
            ));
        }
        if mount.mount_path.is_empty() {
            errors.push(format!(
                "{field}.volumeMounts[{index}].mountPath: Required value"
            ));
        }
    }
    for (index, port) in container.ports.iter().flatten().enumerate() {
        let host = port.host_port.unwrap_or(1);
        for (name, number) in [("containerPort", port.container_port), ("hostPort", host)] {
            if !(1..=65535).contains(&number) {
                errors.push(format!(
                    "{field}.ports[{index}].{name}: Invalid value: {number}"
                ));
            }
        }
    }
    for (index, variable) in container.env.iter().flatten().enumerate() {
        if variable.name.is_empty() || variable.name.contains('=') {
            let name = &variable.name;
            errors.push(format!(
                "{field}.env[{index}].name: Invalid value: \"{name}\""
            ));
        }
    }
}

/// The uid of a pod names its folders and its cgroup: one part of a path, which no other string
/// that is joined to it runs into. UUIDs and digests are.
fn is_uid(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=UID_LEN_MAX).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-')
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty()
        && text.len() <= LABEL_LEN_MAX
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    // Parts of a name may be longer than a label of the DNS, as the API has it.
    let part = |part: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty()
            && part.bytes().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= SUBDOMAIN_LEN_MAX && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_named_with_its_field() {
        let text = r#"{
            "metadata": {"name": "Web", "namespace": "default", "uid": "../x"},
            "spec": {
                "restartPolicy": "Sometimes", "dnsPolicy": "Default",
                "volumes": [{"name": "v"}, {"name": "v"}],
                "containers": [
                    {"name": "a", "image": "", "imagePullPolicy": "Never",
                     "volumeMounts": [{"name": "w", "mountPath": "/w"}]},
                    {"name": "a", "image": "i", "imagePullPolicy": "Never",
                     "ports": [{"containerPort": 70000}]}
                ]
            }
        }"#;
        let pod: Pod = serde_json::from_str(text).expect("pod");
        let errors = validate(&pod);
        for field in [
            "metadata.name: ",
            "metadata.uid: ",
            "spec.restartPolicy: ",
            "spec.volumes[1].name: Duplicate",
            "spec.containers[0].image: ",
            "spec.containers[0].volumeMounts[0].name: Not found",
            "spec.containers[1].name: Duplicate",
            "spec.containers[1].ports[0].containerPort: ",
        ] {
            assert!(
                errors.iter().any(|error| error.starts_with(field)),
                "{field}: {errors:?}"
            );
        }
        assert_eq!(errors.len(), 8, "{errors:?}");
    }

    #[test]
    fn a_uid_is_one_part_of_a_path() {
        let uuid = "0e2a1c52-7f5d-4d8b-9a60-3f6f2f2c1b11";
        assert!(is_uid(uuid) && is_uid("d41d8cd98f00b204e9800998ecf8427e"));
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "/etc",
            "a_b",
            "a\0",
            "-a",
            &"a".repeat(64),
        ] {
            assert!(!is_uid(bad), "{bad}");
        }
    }

    #[test]
    fn names_are_labels_of_the_dns() {
        assert!(is_label("a-1") && is_subdomain("web.v2-node-1"));
        for bad in ["", "-a", "a-", "A", "a_b", &"a".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
    }
}
