//! What the API fills in, for pods that never pass it (`pkg/apis/core/v1/defaults.go`).

use k8s_openapi::api::core::v1::{
    Container, EmptyDirVolumeSource, EnvVar, HTTPGetAction, HostPathVolumeSource, LifecycleHandler,
    Pod, PodSecurityContext, PodSpec, Probe, Toleration, Volume,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// `defaultMode` of volumes that are written as files: 0644.
const DEFAULT_MODE: i32 = 0o644;

/// Fills in what the manifest leaves open.
pub(crate) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context
        .get_or_insert_with(PodSecurityContext::default);
    spec.enable_service_links.get_or_insert(true);
    tolerate_all(spec);
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    let host_network = spec.host_network.unwrap_or_default();
    let inits = spec.init_containers.iter_mut().flatten();
    for container in inits.chain(&mut spec.containers) {
        default_container(container, host_network);
    }
}

/// A static pod stays whatever happens to its node: nobody else could start it.
fn tolerate_all(spec: &mut PodSpec) {
    let all = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
}

fn text(field: &mut Option<String>, value: &str) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(value.to_owned());
    }
}

fn number(field: &mut Option<i32>, value: i32) {
    if field.is_none_or(|number| number == 0) {
        *field = Some(value);
    }
}

fn default_container(container: &mut Container, host_network: bool) {
    let policy = pull_policy(container.image.as_deref().unwrap_or_default());
    text(&mut container.image_pull_policy, policy);
    text(
        &mut container.termination_message_path,
        "/dev/termination-log",
    );
    text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        if host_network {
            number(&mut port.host_port, port.container_port);
        }
    }
    for variable in container.env.iter_mut().flatten() {
        default_variable(variable);
    }
    if let Some(resources) = &mut container.resources
        && let Some(limits) = resources.limits.clone()
    {
        let requests = resources.requests.get_or_insert_default();
        for (name, quantity) in limits {
            requests.entry(name).or_insert(quantity);
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
        for hook in hooks.into_iter().flatten() {
            default_hook(hook);
        }
    }
}

/// An image without a tag is its newest; one whose tag may move is asked for each time.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    }
}

fn default_variable(variable: &mut EnvVar) {
    if let Some(source) = &mut variable.value_from
        && let Some(field) = &mut source.field_ref
    {
        text(&mut field.api_version, "v1");
    }
}

fn default_probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        default_get(get);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_hook(hook: &mut LifecycleHandler) {
    if let Some(get) = &mut hook.http_get {
        default_get(get);
    }
}

fn default_get(get: &mut HTTPGetAction) {
    text(&mut get.path, "/");
    text(&mut get.scheme, "HTTP");
    if let IntOrString::String(port) = &get.port
        && let Ok(number) = port.parse()
    {
        get.port = IntOrString::Int(number);
    }
}

fn default_volume(volume: &mut Volume) {
    let bare = Volume {
        name: volume.name.clone(),
        ..Volume::default()
    };
    if *volume == bare {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(HostPathVolumeSource { type_, .. }) = &mut volume.host_path {
        type_.get_or_insert_default();
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(DEFAULT_MODE);
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(DEFAULT_MODE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_whose_tag_may_move_is_always_pulled() {
        for (image, policy) in [
            ("busybox", "Always"),
            ("busybox:latest", "Always"),
            ("localhost:5000/busybox", "Always"),
            ("localhost:5000/busybox:1.36", "IfNotPresent"),
            ("busybox@sha256:abc", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn requests_default_to_limits_and_a_volume_without_a_source_is_an_empty_dir() {
        let text = r#"{"spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "1", "memory": "1Gi"},
                "requests": {"cpu": "500m"}}}],
            "volumes": [{"name": "v"}, {"name": "h", "hostPath": {"path": "/x"}}]
        }}"#;
        let mut pod: Pod = serde_json::from_str(text).expect("pod");
        apply(&mut pod);
        let spec = pod.spec.expect("spec");
        let resources = spec.containers[0].resources.as_ref().expect("resources");
        let requests = resources.requests.as_ref().expect("requests");
        assert_eq!(
            (requests["cpu"].0.as_str(), requests["memory"].0.as_str()),
            ("500m", "1Gi")
        );
        let volumes = spec.volumes.expect("volumes");
        assert!(volumes[0].empty_dir.is_some());
        assert!(volumes[1].empty_dir.is_none());
    }
}
