//! Finds what of a new pod the node does not serve, before the loop takes the pod.
//!
//! The question turns over every field that a pod sets. It is asked by a task of its own, one event
//! ahead of the loop and in the order of events, so that deaths of other pods do not wait for it.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::{ControlPlaneEvent, ControlPlaneReceiver};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::sources::is_mirror;
use tokio::sync::mpsc;

use crate::admission::fields;
use crate::status::phase::PodPhase;

/// Events that are looked through and wait for the loop: the sender's own queue holds the others.
const VETTED_QUEUE_MAX: usize = 16;

/// An event, and what was found in its pods.
pub(super) struct Vetted {
    pub(super) event: ControlPlaneEvent,
    pub(super) found: Vec<Found>,
}

/// The fields of one pod that are not served.
pub(super) type Found = (PodUid, Vec<String>);

/// Looks through events ahead of whoever reads the answer. Ends with either side.
pub(super) fn ahead(mut control: ControlPlaneReceiver) -> mpsc::Receiver<Vetted> {
    let (sender, receiver) = mpsc::channel(VETTED_QUEUE_MAX);
    tokio::spawn(async move {
        loop {
            let event = tokio::select! {
                biased;
                () = sender.closed() => return,
                event = control.recv() => event,
            };
            let Some(event) = event else {
                return;
            };
            let found = look_through(&event).await;
            if sender.send(Vetted { event, found }).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn look_through(event: &ControlPlaneEvent) -> Vec<Found> {
    let pods = match event {
        ControlPlaneEvent::Pods(all) => all.as_slice(),
        ControlPlaneEvent::PodUpsert(pod) => std::slice::from_ref(pod),
        _ => &[],
    };
    let mut found = Vec::new();
    for pod in pods.iter().filter(|pod| may_be_new(pod)) {
        found.push((PodKey::of(pod).uid, fields::refused(pod)));
        // A full list has up to a thousand of them: others are not kept waiting for all.
        tokio::task::yield_now().await;
    }
    found
}

/// Whether the loop will ask about the pod: not about one that the node has taken before, that has
/// ended, or that only shows another one.
fn may_be_new(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let taken = status.is_some_and(|status| status.start_time.is_some());
    let phase = status.and_then(|status| status.phase.as_deref());
    let has_ended =
        pod.metadata.deletion_timestamp.is_some() || PodPhase::terminal(phase).is_some();
    !taken && !has_ended && !is_mirror(pod)
}

/// What was found in pods that the loop has not decided about.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    found: HashMap<PodUid, Vec<String>>,
}

impl Refusals {
    /// Keeps what was found.
    pub(super) fn keep(&mut self, (uid, fields): Found) {
        self.found.insert(uid, fields);
    }

    /// The fields of this pod that are not served. A pod that came another way, such as a static
    /// one, is looked through now.
    pub(super) fn of(&mut self, pod: &Pod) -> Vec<String> {
        let found = self.found.remove(&PodKey::of(pod).uid);
        found.unwrap_or_else(|| fields::refused(pod))
    }

    /// The pod is gone.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.found.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use swiftlet_model::sources::CONFIG_MIRROR;

    use super::*;
    use crate::testing::stand::pod;

    #[tokio::test]
    async fn a_new_pod_is_looked_through_before_the_loop_takes_it_and_a_known_one_is_not() {
        let (sender, control) = mpsc::channel(4);
        let mut vetted = ahead(control);
        let mut new = pod("a");
        new.spec.as_mut().unwrap().host_users = Some(false);
        let mut known = new.clone();
        known.status.get_or_insert_default().start_time = Some(Time(Timestamp::UNIX_EPOCH));
        for pod in [new, known] {
            let event = ControlPlaneEvent::PodUpsert(Arc::new(pod));
            sender.send(event).await.unwrap();
        }
        let first = vetted.recv().await.unwrap();
        let found = ("a".into(), vec!["spec.hostUsers: false".to_owned()]);
        assert_eq!(first.found, [found]);
        let mut refusals = Refusals::default();
        // What was found counts: nobody looks again.
        refusals.keep(("a".into(), vec!["spec.found".to_owned()]));
        assert_eq!(refusals.of(&pod("a")), ["spec.found"]);
        assert!(refusals.of(&pod("a")).is_empty());
        assert!(vetted.recv().await.unwrap().found.is_empty());
    }

    #[test]
    fn pods_that_nobody_will_ask_about_are_not_looked_through() {
        assert!(may_be_new(&pod("a")));
        let mut ended = pod("a");
        ended.status.get_or_insert_default().phase = Some("Failed".into());
        assert!(!may_be_new(&ended));
        let mut mirror = pod("a");
        let annotations = mirror.metadata.annotations.get_or_insert_default();
        annotations.insert(CONFIG_MIRROR.into(), "x".into());
        assert!(!may_be_new(&mirror));
    }

    #[tokio::test]
    async fn nothing_is_taken_from_the_sender_once_the_loop_is_gone() {
        let (sender, control) = mpsc::channel(4);
        let vetted = ahead(control);
        drop(vetted);
        // Nothing is sent: the end of the loop alone must be enough.
        sender.closed().await;
    }
}
