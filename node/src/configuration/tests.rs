use clap::Parser as _;
use swiftlet_kubelet::cpu_manager::CpuPolicy;

use super::*;
use crate::options::{Cli, NodeOptions};

/// What `kubeadm init` writes to /var/lib/kubelet/config.yaml on a node with systemd.
const KUBEADM: &str = include_str!("kubeadm.yaml");

fn options(arguments: &[&str]) -> NodeOptions {
    let all = ["swiftlet-node"].iter().chain(arguments);
    Cli::try_parse_from(all).expect("parsed").options
}

fn check(fields: &str) -> Result<Configuration, ConfigurationError> {
    let text = format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{fields}");
    Configuration::check(serde_saphyr::from_str(&text).expect("yaml"))
}

fn apply(fields: &str) -> Result<(NodeOptions, Settings), ConfigurationError> {
    let mut options = options(&[]);
    let settings = check(fields)?.apply(&mut options, &|_| false)?;
    Ok((options, settings))
}

fn refusal(fields: &str) -> String {
    let refused = apply(fields).expect_err(fields);
    refused.to_string()
}

#[test]
fn the_file_of_kubeadm_is_taken_and_what_has_no_effect_is_named() {
    let document = serde_saphyr::from_str(KUBEADM).expect("yaml");
    let configuration = Configuration::check(document).expect("valid");
    let mut options = options(&[]);
    let settings = configuration
        .apply(&mut options, &|_| false)
        .expect("applied");
    let manifests = options.pod_manifest_path.expect("static pods");
    assert_eq!(manifests, Path::new("/etc/kubernetes/manifests"));
    assert_eq!(settings.pods.cluster_dns, ["10.96.0.10"]);
    assert_eq!(settings.pods.cluster_domain, "cluster.local");
    assert_eq!(
        options.resolv_conf,
        Path::new("/run/systemd/resolve/resolv.conf")
    );
    let named: Vec<_> = configuration
        .without_effect()
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(named, ["cgroupDriver", "rotateCertificates"]);
    let authority = options.client_ca_file.expect("an authority for clients");
    assert_eq!(authority, Path::new("/etc/kubernetes/pki/ca.crt"));
}

#[test]
fn every_field_of_the_type_is_served_or_named_or_refused_and_none_is_dropped() {
    assert_eq!(
        fields::FIELDS.len(),
        TABLE_LINES,
        "a line of the table cannot be read"
    );
    for field in fields::FIELDS.iter() {
        let other = another(field);
        let mut document = serde_json::json!({"apiVersion": API_VERSION, "kind": KIND});
        let pointer = field.path.split('.').collect::<Vec<_>>();
        insert(&mut document, &pointer, other.clone());
        let configuration = Configuration::check(document).expect(&field.path);
        assert!(
            configuration.values.contains_key(&*field.path),
            "{}",
            field.path
        );
        let named = configuration.without_effect();
        let named = named.iter().any(|(path, _)| *path == field.path);
        let refused = configuration.refused().is_err();
        let expected = match field.state {
            State::Served => (false, false),
            // What has no meaning of its own is not compared.
            State::Warned => (field.kind != fields::Kind::Any, false),
            State::Refused => (false, true),
        };
        assert_eq!((named, refused), expected, "{} = {other}", field.path);
    }
}

/// Lines of the table that are no comments.
const TABLE_LINES: usize = 136;

fn insert(document: &mut Value, path: &[&str], value: Value) {
    match path {
        [name] => document[*name] = value,
        [name, rest @ ..] => {
            if document[*name].is_null() {
                document[*name] = serde_json::json!({});
            }
            insert(&mut document[*name], rest, value);
        }
        [] => (),
    }
}

/// A value that the field can have, other than its default.
fn another(field: &Field) -> Value {
    use fields::Kind;
    match field.kind {
        Kind::Bool => (!field.default.as_bool().unwrap_or_default()).into(),
        Kind::Int => (field.default.as_i64().unwrap_or_default() + 1).into(),
        Kind::Float => 0.5.into(),
        Kind::String => "other".into(),
        Kind::Duration | Kind::Any => "7s".into(),
        Kind::Quantity => "7Mi".into(),
        Kind::Strings => serde_json::json!(["other"]),
        Kind::Map => serde_json::json!({"key": "other"}),
        Kind::Bools => serde_json::json!({"Gate": true}),
        Kind::Headers => serde_json::json!({"X-Key": ["other"]}),
        Kind::List => serde_json::json!([{"key": "other"}]),
    }
}

#[test]
fn the_defaults_of_the_table_are_valid_and_change_nothing() {
    for field in fields::FIELDS.iter() {
        if field.kind != fields::Kind::Any {
            let checked = fields::is_set(field, &field.default);
            assert!(checked.is_ok(), "{}", field.path);
        }
        assert!(fields::is_same(field, &field.default, &field.default));
    }
}

#[test]
fn what_is_unknown_or_wrong_is_an_error_that_names_the_field() {
    for (fields, message) in [
        ("maxPod: 3", "unknown field \"maxPod\""),
        (
            "authentication: {x509: {caFile: a}}",
            "unknown field \"authentication.x509.caFile\"",
        ),
        ("maxPods: many", "maxPods: \"many\" is not a whole number"),
        ("authentication: true", "authentication: must be an object"),
        (
            "fileCheckFrequency: 20",
            "fileCheckFrequency: 20 is not a duration such as \"20s\"",
        ),
        (
            "clusterDNS: 10.96.0.10",
            "clusterDNS: \"10.96.0.10\" is not a list of strings",
        ),
        ("cgroupsPerQOS: false", "cgroupsPerQOS: false is not served"),
        (
            "podCIDR: fd00::/640",
            "podCIDR: \"fd00::/640\" is no range of addresses",
        ),
        (
            "systemReserved: {gpu: '1'}",
            "systemReserved: cannot reserve \"gpu\" resource",
        ),
        (
            "cpuManagerPolicy: dynamic",
            "cpuManagerPolicy: \"dynamic\" is no policy",
        ),
        (
            "containerLogMaxFiles: 1",
            "containerLogMaxFiles: 1 is less than 2",
        ),
        (
            "crashLoopBackOff: {maxContainerRestartPeriod: 10m}",
            "crashLoopBackOff.maxContainerRestartPeriod: must be from 1s to 300s",
        ),
        (
            "imageGCLowThresholdPercent: 90",
            "imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent",
        ),
        (
            "evictionHard: {memory.free: 1Gi}",
            "unsupported eviction signal memory.free",
        ),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 3",
            "maxParallelImagePulls: must not be more than 1 while serializeImagePulls is true",
        ),
    ] {
        let refusal = refusal(fields);
        assert!(refusal.contains(message), "{fields}: {refusal}");
    }
}

#[test]
fn another_kind_of_object_is_refused() {
    let document = serde_json::json!({"apiVersion": "v1", "kind": "Pod"});
    let refused = Configuration::check(document).expect_err("refused");
    assert!(
        refused
            .to_string()
            .starts_with("is v1/Pod, not kubelet.config"),
        "{refused}"
    );
}

#[test]
fn a_flag_wins_over_the_file() {
    let mut options = options(&["--max-pods", "7"]);
    let configuration = check("maxPods: 200\npodLogsDir: /logs").expect("valid");
    let flags = |name: &str| name == "max_pods";
    configuration.apply(&mut options, &flags).expect("applied");
    assert_eq!(options.max_pods, 7);
    assert_eq!(options.pod_logs_dir, Path::new("/logs"));
}

#[test]
fn what_is_served_reaches_its_setting() {
    let (_, settings) = apply(
        "
systemReserved: {cpu: 250m, memory: 1Gi}
cpuManagerPolicy: static
reservedSystemCPUs: 0-1
podPidsLimit: 100
enforceNodeAllocatable: []
evictionHard: {memory.available: 5%}
evictionSoft: {nodefs.available: 20%}
evictionSoftGracePeriod: {nodefs.available: 1m30s}
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
containerLogMaxSize: 50Mi
imageMaximumGCAge: 24h
serializeImagePulls: false
maxParallelImagePulls: 9
crashLoopBackOff: {maxContainerRestartPeriod: 30s}
nodeLeaseDurationSeconds: 20
staticPodURL: http://example.com/pods
staticPodURLHeader: {Authorization: [secret]}
registerWithTaints: [{key: dedicated, value: x, effect: NoSchedule}]
",
    )
    .expect("applied");
    let resources = &settings.resources;
    assert_eq!(resources.system_reserved.cpu_milli, 250);
    assert_eq!(resources.system_reserved.memory_bytes, 1 << 30);
    assert_eq!(resources.cpu_manager.policy, CpuPolicy::Static);
    assert_eq!(resources.pod_pids_max, Some(100));
    assert!(!resources.enforce_pods);
    assert_eq!(resources.eviction.thresholds.len(), 2);
    assert_eq!(resources.shutdown.total().as_secs(), 30);
    assert_eq!(settings.limits.logs.bytes_max, Some(50 << 20));
    assert_eq!(
        settings
            .limits
            .image_gc
            .maximum_age
            .map(|age| age.as_secs()),
        Some(86_400)
    );
    assert_eq!(settings.limits.image_pulls, 9);
    assert_eq!(settings.limits.crash_loop_backoff_max.as_secs(), 30);
    assert_eq!(settings.limits.heartbeat.lease_duration_s, 20);
    assert_eq!(
        settings.static_pods.url.as_deref(),
        Some("http://example.com/pods")
    );
    assert_eq!(
        settings.static_pods.headers,
        [("Authorization".into(), "secret".into())]
    );
    assert_eq!(settings.taints[0].key, "dedicated");
}
