use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn pod(uid: &str, priority: i32) -> Arc<Pod> {
    Arc::new(Pod {
        metadata: ObjectMeta {
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            priority: Some(priority),
            ..PodSpec::default()
        }),
        ..Pod::default()
    })
}

fn pop(queue: &mut SchedulingQueue) -> Option<(String, u32)> {
    queue
        .pop()
        .map(|attempt| (attempt.pod.uid().to_owned(), attempt.number))
}

#[test]
fn priority_comes_before_age() {
    let mut queue = SchedulingQueue::default();
    for (uid, priority) in [("a", 0), ("b", 0), ("c", 5)] {
        queue.add(pod(uid, priority));
    }
    let order: Vec<_> = std::iter::from_fn(|| pop(&mut queue))
        .map(|(uid, _)| uid)
        .collect();
    assert_eq!(order, ["c", "a", "b"]);
}

#[test]
fn an_unschedulable_pod_waits_for_an_event_and_for_its_back_off() {
    let mut queue = SchedulingQueue::default();
    let start = Instant::now();
    queue.add(pod("a", 0));
    let attempt = queue.pop().unwrap();
    queue.unschedulable(attempt, vec!["NodeResourcesFit"], start);
    queue.add(pod("a", 0));
    assert!(
        !queue.has_active(),
        "a status update is no reason to try again"
    );
    queue.on_event(ClusterEvent::Node, start);
    assert!(!queue.has_active());
    assert_eq!(queue.next_due(), Some(start + BACKOFF_FIRST));
    queue.flush(start + BACKOFF_FIRST);
    assert_eq!(pop(&mut queue), Some(("a".into(), 2)));
}

#[test]
fn an_event_after_the_back_off_makes_the_pod_active_at_once() {
    let mut queue = SchedulingQueue::default();
    let start = Instant::now();
    queue.add(pod("a", 0));
    let attempt = queue.pop().unwrap();
    queue.unschedulable(attempt, vec!["TaintToleration"], start);
    let later = start + BACKOFF_MOST;
    queue.on_event(ClusterEvent::PodGone, later);
    assert!(
        !queue.has_active(),
        "a pod that goes takes no taint with it"
    );
    queue.on_event(ClusterEvent::Node, later);
    assert!(queue.has_active());
}

#[test]
fn without_any_event_a_pod_is_tried_again_after_five_minutes() {
    let mut queue = SchedulingQueue::default();
    let start = Instant::now();
    queue.add(pod("a", 0));
    let attempt = queue.pop().unwrap();
    queue.unschedulable(attempt, vec!["NodeName"], start);
    queue.flush(start + UNSCHEDULABLE_MOST - Duration::from_millis(1));
    assert!(!queue.has_active());
    queue.flush(start + UNSCHEDULABLE_MOST);
    assert!(queue.has_active());
}
