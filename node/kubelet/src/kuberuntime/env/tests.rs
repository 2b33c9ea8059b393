use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    ConfigMapEnvSource, ConfigMapKeySelector, EnvVarSource, ObjectFieldSelector,
    ResourceFieldSelector, ResourceRequirements, SecretEnvSource,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::testing::stand::pod;

fn var(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.into(),
        value: Some(value.into()),
        ..EnvVar::default()
    }
}

fn from(name: &str, source: EnvVarSource) -> EnvVar {
    EnvVar {
        name: name.into(),
        value_from: Some(source),
        ..EnvVar::default()
    }
}

fn field(name: &str, path: &str) -> EnvVar {
    from(
        name,
        EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.into(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        },
    )
}

fn resource(name: &str, resource: &str, divisor: &str) -> EnvVar {
    from(
        name,
        EnvVarSource {
            resource_field_ref: Some(ResourceFieldSelector {
                resource: resource.into(),
                divisor: Some(Quantity(divisor.into())),
                ..ResourceFieldSelector::default()
            }),
            ..EnvVarSource::default()
        },
    )
}

fn facts() -> EnvFacts {
    EnvFacts {
        node_name: "n1".into(),
        host_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
        pod_ips: vec!["10.1.0.1".into()],
        allocatable_cpu_milli: 3500,
        allocatable_memory_bytes: 1 << 30,
        allocatable_ephemeral_storage_bytes: 7,
    }
}

fn made(
    env: Vec<EnvVar>,
    env_from: Vec<EnvFromSource>,
    referenced: &Referenced,
    services: &[(&str, &str)],
) -> Result<Environment, EnvError> {
    let mut pod = pod("a");
    pod.metadata.namespace = Some("ns".into());
    pod.metadata.labels = Some([("app.x/y".into(), "web".into())].into());
    let container = Container {
        name: "main".into(),
        env: Some(env),
        env_from: Some(env_from),
        resources: Some(ResourceRequirements {
            limits: Some([("hugepages-2Mi".into(), Quantity("4Mi".into()))].into()),
            requests: Some([("cpu".into(), Quantity("1500m".into()))].into()),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    let services = services
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    environment(&pod, &container, referenced, &services.collect(), &facts())
}

fn values(env: Vec<EnvVar>) -> BTreeMap<String, String> {
    let made = made(env, Vec::new(), &Referenced::new(), &[]).unwrap();
    made.0.into_iter().collect()
}

#[test]
fn a_container_is_told_of_its_pod_in_every_field() {
    let fields = [
        ("metadata.name", "a"),
        ("metadata.namespace", "ns"),
        ("metadata.labels['app.x/y']", "web"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", "app.x/y=\"web\""),
        ("spec.nodeName", "n1"),
        ("status.hostIP", "10.0.0.1"),
        ("status.hostIPs", "10.0.0.1,fd00::1"),
        ("status.podIP", "10.1.0.1"),
        ("status.podIPs", "10.1.0.1"),
    ];
    for (path, expected) in fields {
        assert_eq!(values(vec![field("X", path)])["X"], expected, "{path}");
    }
    let unknown = made(
        vec![field("X", "spec.x")],
        Vec::new(),
        &Referenced::new(),
        &[],
    );
    let text = unknown.unwrap_err().to_string();
    assert!(text.ends_with("unsupported fieldPath: spec.x"), "{text}");
}

#[test]
fn resources_are_rounded_up_and_fall_back_to_the_nodes() {
    for (name, divisor, expected) in [
        ("requests.cpu", "0", "2"),
        ("requests.cpu", "1m", "1500"),
        ("limits.cpu", "1", "4"),
        ("limits.memory", "1Mi", "1024"),
        ("requests.memory", "1Mi", "0"),
        ("limits.ephemeral-storage", "2", "4"),
        ("limits.hugepages-2Mi", "1Mi", "4"),
    ] {
        assert_eq!(
            values(vec![resource("X", name, divisor)])["X"],
            expected,
            "{name}"
        );
    }
    let unknown = made(
        vec![resource("X", "limits.pods", "1")],
        Vec::new(),
        &Referenced::new(),
        &[],
    );
    let text = unknown.unwrap_err().to_string();
    assert!(
        text.ends_with("unsupported container resource : limits.pods"),
        "{text}"
    );
}

#[test]
fn variables_see_those_before_them_and_services_and_win_over_services() {
    let env = vec![
        var("A", "$(B)-$(WEB)"),
        var("B", "1"),
        var("C", "$(B)$$(B)"),
        var("WEB", "w"),
    ];
    let services = [("OTHER", "o"), ("WEB", "svc")];
    let (env, known) = made(env, Vec::new(), &Referenced::new(), &services).unwrap();
    let env: Vec<_> = env
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        env,
        [
            ("A", "$(B)-svc"),
            ("B", "1"),
            ("C", "1$(B)"),
            ("WEB", "w"),
            ("OTHER", "o")
        ]
    );
    assert_eq!((known["WEB"].as_str(), known["OTHER"].as_str()), ("w", "o"));
}

fn config_map(name: &str, data: &[(&str, &str)]) -> Referenced {
    let key = ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "ns".into(),
        name: name.into(),
    };
    let data = data
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    [(key, Some(Arc::new(data.collect::<BTreeMap<_, Vec<u8>>>())))].into()
}

#[test]
fn whole_objects_come_with_their_prefix_and_the_containers_own_word_wins() {
    let source = EnvFromSource {
        prefix: Some("P_".into()),
        config_map_ref: Some(ConfigMapEnvSource {
            name: "m".into(),
            ..ConfigMapEnvSource::default()
        }),
        ..EnvFromSource::default()
    };
    let map = config_map("m", &[("a", "1"), ("b.c-d", "2")]);
    let (env, _) = made(vec![var("P_a", "own")], vec![source.clone()], &map, &[]).unwrap();
    assert_eq!(
        env,
        [("P_a".into(), "own".into()), ("P_b.c-d".into(), "2".into())]
    );
    let missing = made(Vec::new(), vec![source], &Referenced::new(), &[]);
    assert_eq!(
        missing.unwrap_err().to_string(),
        "configmap \"m\" not found"
    );
}

#[test]
fn keys_that_cannot_be_variables_are_left_out_and_named() {
    let source = EnvFromSource {
        prefix: Some("x=".into()),
        config_map_ref: Some(ConfigMapEnvSource {
            name: "m".into(),
            ..ConfigMapEnvSource::default()
        }),
        ..EnvFromSource::default()
    };
    let map = config_map("m", &[("b", "1"), ("a", "1")]);
    let (env, _) = made(Vec::new(), vec![source.clone()], &map, &[]).unwrap();
    assert!(env.is_empty());
    let mut pod = pod("a");
    pod.metadata.namespace = Some("ns".into());
    let container = Container {
        env_from: Some(vec![source]),
        ..Container::default()
    };
    assert_eq!(
        invalid_names(&pod, &container, &map),
        [
            "Keys [x=a, x=b] from the EnvFrom configMap ns/m were skipped since they are considered \
          invalid environment variable names."
        ]
    );
}

#[test]
fn what_is_optional_may_be_missing_and_what_is_not_is_named() {
    let key = |optional| EnvVarSource {
        config_map_key_ref: Some(ConfigMapKeySelector {
            name: "m".into(),
            key: "k".into(),
            optional,
        }),
        ..EnvVarSource::default()
    };
    let empty = config_map("m", &[]);
    let (env, _) = made(vec![from("X", key(Some(true)))], Vec::new(), &empty, &[]).unwrap();
    assert!(env.is_empty());
    let missing = made(vec![from("X", key(None))], Vec::new(), &empty, &[]);
    assert_eq!(
        missing.unwrap_err().to_string(),
        "couldn't find key k in ConfigMap ns/m"
    );
    let whole = EnvFromSource {
        secret_ref: Some(SecretEnvSource {
            name: "s".into(),
            optional: Some(true),
        }),
        ..EnvFromSource::default()
    };
    assert!(
        made(Vec::new(), vec![whole], &Referenced::new(), &[])
            .unwrap()
            .0
            .is_empty()
    );
}
