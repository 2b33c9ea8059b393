use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements, Taint, Toleration};
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
fn a_pod_with_a_field_that_is_not_served_is_refused_by_its_name() {
    let pod = with(|spec| spec.host_users = Some(false));
    let verdict = asked(&pod, &Room::default(), &Allocatable::default());
    let Verdict::Reject(refused) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(refused.reason, "UnexpectedAdmissionError");
    assert_eq!(
        refused.message,
        "this node does not serve: spec.hostUsers: false"
    );
}

fn asked(pod: &Pod, room: &Room, allocatable: &Allocatable) -> Verdict {
    let node = NodeState {
        name: "n1",
        allocatable,
        pressure: Pressure::default(),
        shutting_down: false,
        view: None,
        safety: Safety::default(),
    };
    admit(pod, &fields::refused(pod), room, &node)
}

fn wants(cpu: &str) -> Pod {
    with_main(|one| {
        let requests = [("cpu".to_owned(), Quantity(cpu.to_owned()))].into();
        one.resources = Some(ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        });
    })
}

fn named(pod: Pod, uid: &str) -> Arc<Pod> {
    let mut pod = pod;
    pod.metadata.uid = Some(uid.to_owned());
    Arc::new(pod)
}

fn why(verdict: Verdict) -> (String, String) {
    match verdict {
        Verdict::Reject(rejection) | Verdict::Short(rejection, _) => {
            (rejection.reason, rejection.message)
        }
        Verdict::Admit => (String::new(), String::new()),
    }
}

#[test]
fn a_pod_for_which_there_is_no_room_is_refused_in_the_words_of_kubernetes() {
    let allocatable = Allocatable {
        cpu_milli: 1000,
        pods: 2,
        ..Allocatable::default()
    };
    let mut room = Room::default();
    room.take(named(wants("600m"), "old"));
    let (reason, message) = why(asked(&wants("500m"), &room, &allocatable));
    assert_eq!(reason, "OutOfcpu");
    assert_eq!(
        message,
        "Node didn't have enough resource: cpu, requested: 500, used: 600, capacity: 1000"
    );
    assert_eq!(asked(&wants("400m"), &room, &allocatable), Verdict::Admit);
    room.take(named(pod("x"), "x"));
    assert_eq!(why(asked(&pod("z"), &room, &allocatable)).0, "OutOfpods");
    let disk = with_main(|one| {
        let requests = [("ephemeral-storage".to_owned(), Quantity("1Gi".into()))].into();
        one.resources = Some(ResourceRequirements {
            requests: Some(requests),
            ..ResourceRequirements::default()
        });
    });
    let verdict = asked(&disk, &Room::default(), &allocatable);
    assert_eq!(
        why(verdict).1,
        "Node didn't have enough resource: ephemeral-storage, requested: 1073741824, used: 0, \
         capacity: 0"
    );
}

#[test]
fn a_node_that_is_short_of_memory_takes_no_pod_that_asks_for_none() {
    let allocatable = Allocatable {
        cpu_milli: 1000,
        pods: 2,
        ..Allocatable::default()
    };
    let memory = Pressure {
        memory: true,
        ..Pressure::default()
    };
    let disk = Pressure {
        disk: true,
        ..Pressure::default()
    };
    let under = |pod: &Pod, pressure| {
        let node = NodeState {
            name: "n1",
            allocatable: &allocatable,
            pressure,
            shutting_down: false,
            view: None,
            safety: Safety::default(),
        };
        why(admit(pod, &[], &Room::default(), &node))
    };
    let (reason, message) = under(&pod("a"), memory);
    assert_eq!(reason, "Evicted");
    assert_eq!(message, "The node had condition: [MemoryPressure]. ");
    assert_eq!(under(&wants("1m"), memory).0, "");
    assert_eq!(under(&wants("1m"), disk).0, "Evicted");
    let critical = with(|spec| spec.priority = Some(SYSTEM_CRITICAL_PRIORITY));
    assert_eq!(under(&critical, disk).0, "");
}

#[test]
fn a_pod_that_names_a_node_by_hand_must_still_belong_there() {
    let allocatable = Allocatable {
        pods: 2,
        ..Allocatable::default()
    };
    let taint = Taint {
        key: "gone".into(),
        effect: "NoExecute".into(),
        ..Taint::default()
    };
    let view = NodeView {
        labels: [("disk".to_owned(), "ssd".to_owned())].into(),
        taints: vec![taint],
    };
    let on = |pod: &Pod| {
        let node = NodeState {
            name: "n1",
            allocatable: &allocatable,
            pressure: Pressure::default(),
            shutting_down: false,
            view: Some(&view),
            safety: Safety::default(),
        };
        why(admit(pod, &[], &Room::default(), &node))
    };
    let (reason, message) = on(&with(|spec| {
        spec.node_selector = Some([("disk".to_owned(), "hdd".to_owned())].into());
    }));
    assert_eq!(reason, "NodeAffinity");
    assert_eq!(
        message,
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    );
    assert_eq!(on(&pod("a")).0, "TaintToleration");
    let tolerant = with(|spec| {
        spec.tolerations = Some(vec![Toleration {
            operator: Some("Exists".into()),
            ..Toleration::default()
        }]);
    });
    assert_eq!(on(&tolerant).0, "");
    let elsewhere = with(|spec| spec.node_name = Some("n2".into()));
    assert_eq!(on(&elsewhere).0, "NodeName");
}

#[test]
fn a_node_that_shuts_down_takes_nothing() {
    let allocatable = Allocatable::default();
    let node = NodeState {
        name: "n1",
        allocatable: &allocatable,
        pressure: Pressure::default(),
        shutting_down: true,
        view: None,
        safety: Safety::default(),
    };
    let (reason, message) = why(admit(&pod("a"), &[], &Room::default(), &node));
    assert_eq!(reason, "NodeShutdown");
    assert_eq!(message, "Pod was rejected as the node is shutting down.");
}
