//! Finds what of a new pod the node does not serve, before the loop takes the pod.
//!
//! The question turns over every field that a pod sets. It is asked by a task of its own, one event
//! ahead of the loop and in the order of events, so that deaths of other pods do not wait for it.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::{ControlPlaneEvent, ControlPlaneReceiver};
use swiftlet_model::ids::{PodKey, PodUid};
use tokio::sync::mpsc;

use crate::admission::fields;

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
        while let Some(event) = control.recv().await {
            let found = look_through(&event);
            if sender.send(Vetted { event, found }).await.is_err() {
                return;
            }
        }
    });
    receiver
}

fn look_through(event: &ControlPlaneEvent) -> Vec<Found> {
    let pods = match event {
        ControlPlaneEvent::Pods(all) => all.as_slice(),
        ControlPlaneEvent::PodUpsert(pod) => std::slice::from_ref(pod),
        _ => &[],
    };
    let new = pods.iter().filter(|pod| may_be_new(pod));
    new.map(|pod| (PodKey::of(pod).uid, fields::refused(pod)))
        .collect()
}

/// A pod that the node has taken before is not asked about again.
fn may_be_new(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let taken = status.is_some_and(|status| status.start_time.is_some());
    !taken && pod.metadata.deletion_timestamp.is_none()
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
}
