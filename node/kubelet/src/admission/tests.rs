use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EmptyDirVolumeSource, Lifecycle, PodSpec, Probe,
    ProjectedVolumeSource, ResourceRequirements, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::testing::stand::pod;

fn with(change: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut pod = pod("a");
    change(pod.spec.as_mut().unwrap());
    pod
}

fn with_main(change: impl FnOnce(&mut Container)) -> Pod {
    with(|spec| change(&mut spec.containers[0]))
}

#[test]
fn a_field_that_is_not_served_is_named_by_its_path() {
    let port = ContainerPort {
        container_port: 1,
        host_port: Some(2),
        ..ContainerPort::default()
    };
    let mount = VolumeMount {
        sub_path: Some("x".into()),
        name: "v".into(),
        ..VolumeMount::default()
    };
    let projected = Volume {
        name: "token".into(),
        projected: Some(ProjectedVolumeSource::default()),
        ..Volume::default()
    };
    for (pod, path) in [
        (
            with_main(|one| one.liveness_probe = Some(Probe::default())),
            "spec.containers[main].livenessProbe",
        ),
        (
            with_main(|one| one.lifecycle = Some(Lifecycle::default())),
            "spec.containers[main].lifecycle",
        ),
        (
            with_main(|one| one.ports = Some(vec![port])),
            "spec.containers[main].ports.hostPort",
        ),
        (
            with_main(|one| one.volume_mounts = Some(vec![mount])),
            "spec.containers[main].volumeMounts[v].subPath",
        ),
        (
            with(|spec| spec.host_users = Some(false)),
            "spec.hostUsers: false",
        ),
        (
            with(|spec| spec.volumes = Some(vec![projected])),
            "spec.volumes[token].projected",
        ),
        (
            with(|spec| {
                spec.init_containers = Some(vec![Container {
                    name: "i".into(),
                    restart_policy: Some("Always".into()),
                    ..Container::default()
                }]);
            }),
            "spec.initContainers[i].restartPolicy",
        ),
    ] {
        assert_eq!(unserved(&pod), [path]);
        let room = Allocatable {
            cpu_milli: 1,
            memory_bytes: 1,
            pods: 1,
        };
        let refused = admit(&pod, std::iter::empty(), "n1", &room).unwrap_err();
        assert_eq!(refused.reason, "UnexpectedAdmissionError");
        assert!(refused.message.contains(path), "{}", refused.message);
    }
}

#[test]
fn an_ordinary_pod_is_served() {
    let volume = Volume {
        name: "v".into(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    assert!(unserved(&with(|spec| spec.volumes = Some(vec![volume]))).is_empty());
}

#[test]
fn a_pod_for_which_there_is_no_room_is_refused_in_the_words_of_kubernetes() {
    let wants = |cpu: &str| {
        with_main(|one| {
            let requests = [("cpu".to_owned(), Quantity(cpu.to_owned()))].into();
            one.resources = Some(ResourceRequirements {
                requests: Some(requests),
                ..ResourceRequirements::default()
            });
        })
    };
    let room = Allocatable {
        cpu_milli: 1000,
        memory_bytes: 0,
        pods: 2,
    };
    let (old, new) = (wants("600m"), wants("500m"));
    let refused = admit(&new, [&old].into_iter(), "n1", &room).unwrap_err();
    assert_eq!(refused.reason, "OutOfcpu");
    assert_eq!(
        refused.message,
        "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000"
    );
    assert!(admit(&wants("400m"), [&old].into_iter(), "n1", &room).is_ok());
    let taken = [pod("x"), pod("y")];
    let full = taken.iter();
    assert_eq!(
        admit(&pod("z"), full, "n1", &room).unwrap_err().reason,
        "OutOfpods"
    );
    let elsewhere = admit(&pod("z"), std::iter::empty(), "n2", &room).unwrap_err();
    assert_eq!(elsewhere.reason, "NodeName");
}
