use k8s_openapi::api::core::v1::{ContainerResizePolicy, ContainerStatus, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::*;
use crate::testing::stand::pod;

fn asks(cpu: &str) -> ResourceRequirements {
    ResourceRequirements {
        requests: Some([("cpu".to_owned(), Quantity(cpu.to_owned()))].into()),
        ..ResourceRequirements::default()
    }
}

fn wants(uid: &str, cpu: &str) -> Arc<Pod> {
    let mut pod = pod(uid);
    pod.spec.as_mut().unwrap().containers[0].resources = Some(asks(cpu));
    Arc::new(pod)
}

fn node() -> Allocatable {
    Allocatable {
        cpu_milli: 1000,
        ..Allocatable::default()
    }
}

#[test]
fn a_pod_grows_into_what_is_left_and_waits_for_what_is_not() {
    let mut room = Room::default();
    room.take(wants("a", "300m"));
    room.take(wants("b", "500m"));
    let ask = |cpu: &str| decide(&wants("a", cpu), &room, &node(), false);
    assert_eq!(ask("500m"), Ok(()));
    let deferred = ask("600m").unwrap_err();
    assert_eq!(deferred.reason, DEFERRED);
    assert_eq!(
        deferred.message,
        "Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"
    );
    let infeasible = ask("2").unwrap_err();
    assert_eq!(infeasible.reason, INFEASIBLE);
    assert_eq!(
        infeasible.message,
        "Node didn't have enough capacity: cpu, requested: 2000, capacity: 1000"
    );
}

#[test]
fn what_is_promised_stays_until_more_is() {
    let small = wants("a", "100m");
    let large = wants("a", "200m");
    let mut resize = Resize::new(&small);
    assert!(!resize.is_wanted(&small) && resize.is_wanted(&large));
    assert!(
        !resize.is_wanted(&wants("a", "0.1")),
        "the same, written otherwise"
    );
    assert_eq!(resize.allocated_pod(&large).spec, small.spec);
    resize.allocate(&large);
    assert!(!resize.is_wanted(&large) && !resize.is_done());
    assert_eq!(resize.actual_pod(&large).spec, small.spec);
    resize.launched("main", String::new());
    assert!(resize.is_done());
}

#[test]
fn after_a_restart_a_pod_has_what_its_status_says() {
    let mut spec = Pod::clone(&wants("a", "200m"));
    spec.status = Some(PodStatus {
        container_statuses: Some(vec![ContainerStatus {
            name: "main".into(),
            resources: Some(asks("100m")),
            ..ContainerStatus::default()
        }]),
        ..PodStatus::default()
    });
    assert!(Resize::new(&spec).is_wanted(&spec));
}

#[test]
fn only_the_resource_that_needs_it_restarts_a_container() {
    let small = wants("a", "100m");
    let mut large = Pod::clone(&wants("a", "200m"));
    let container = &mut large.spec.as_mut().unwrap().containers[0];
    container.resize_policy = Some(vec![ContainerResizePolicy {
        resource_name: "memory".into(),
        restart_policy: "RestartContainer".into(),
    }]);
    let mut resize = Resize::new(&small);
    resize.allocate(&large);
    let container = &mut large.spec.as_mut().unwrap().containers[0];
    assert!(!resize.needs_restart(container));
    container.resize_policy.as_mut().unwrap()[0].resource_name = "cpu".into();
    assert!(resize.needs_restart(container));
}

#[test]
fn a_wish_that_is_not_granted_is_shown_with_its_reason() {
    let mut resize = Resize::new(&wants("a", "100m"));
    resize.pending = Some(Pending {
        reason: DEFERRED,
        message: "later".into(),
    });
    let mut status = PodStatus::default();
    let shown = Shown {
        resize: &resize,
        previous: &PodStatus::default(),
        generation: Some(3),
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    shown.put_in(&mut status);
    let conditions = status.conditions.unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0].type_, "PodResizePending");
    assert_eq!(conditions[0].reason.as_deref(), Some(DEFERRED));
    assert_eq!(conditions[0].observed_generation, Some(3));
}
