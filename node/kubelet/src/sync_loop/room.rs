//! The loop's part in what the node promises: who is taken, who is ended before its time.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::events::EventKind;
use swiftlet_model::ids::PodKey;

use super::SyncLoop;
use crate::admission::preemption::{PREEMPTING, PREEMPTING_CONDITION, PREEMPTING_MESSAGE, victims};
use crate::admission::{NodeState, Rejection, Safety, Shortage, Verdict, admit, is_critical};
use crate::eviction::disruption_target;
use crate::keeper::Failure;
use crate::pod_worker::queue::{PodFailure, Wish};
use crate::resize::Resize;
use crate::status::phase::PodPhase;

impl SyncLoop {
    /// Whether the node takes a pod that it sees for the first time.
    pub(super) fn ask_room(&mut self, pod: &Arc<Pod>) -> Wish {
        let keeper = &self.shared.keeper;
        let allocatable = self.shared.node.borrow().allocatable();
        let view = keeper.view();
        let node = NodeState {
            name: &self.shared.node_name,
            allocatable: &allocatable,
            pressure: keeper.pressure(),
            shutting_down: keeper.is_shutting_down(),
            view: view.as_ref(),
            safety: Safety {
                app_armor: self.shared.node.borrow().app_armor,
                allowed_unsafe_sysctls: &self.shared.pods.allowed_unsafe_sysctls,
            },
        };
        let refused = self.refusals.of(pod);
        let verdict = admit(pod, &refused, &keeper.room(), &node);
        match verdict {
            Verdict::Admit => self.assign_cpus(pod),
            Verdict::Short(rejection, shortages) if is_critical(pod) => {
                self.preempt(pod, rejection, &shortages)
            }
            Verdict::Reject(rejection) | Verdict::Short(rejection, _) => Wish::Reject(rejection),
        }
    }

    /// Exclusive CPUs, if the pod is of the kind that gets some.
    fn assign_cpus(&self, pod: &Pod) -> Wish {
        match self.shared.cpus.assign(pod) {
            Ok(()) => Wish::Run,
            Err(error) => Wish::Reject(Rejection {
                reason: "UnexpectedAdmissionError".to_owned(),
                message: format!("Allocate failed due to {error}, which is unexpected"),
            }),
        }
    }

    /// Ends others so that a critical pod fits. It is taken at once: what it is promised it has
    /// when the others' grace is over, and a node agent that is needed does not wait for that.
    fn preempt(&mut self, pod: &Arc<Pod>, rejection: Rejection, shortages: &[Shortage]) -> Wish {
        let found = victims(pod, &self.shared.keeper.room(), shortages);
        let Some(all) = found else {
            return Wish::Reject(rejection);
        };
        let now = self.shared.doors.clock.timestamp();
        for victim in all {
            let key = PodKey::of(&victim);
            tracing::info!(pod = %key, "makes room for a critical pod");
            self.shared.recorder.pod(
                &victim,
                None,
                EventKind::Warning,
                PREEMPTING,
                PREEMPTING_MESSAGE.to_owned(),
            );
            let failure = PodFailure {
                reason: PREEMPTING.to_owned(),
                message: PREEMPTING_MESSAGE.to_owned(),
                condition: Some(disruption_target(PREEMPTING_CONDITION, now)),
                grace: None,
            };
            self.fail((key.uid, failure));
        }
        self.assign_cpus(pod)
    }

    /// Ends a pod that shall run. One that ends already keeps its own reason, but has no longer
    /// than the node can give.
    pub(super) fn fail(&mut self, (uid, failure): Failure) {
        let now = self.shared.doors.clock.now();
        if let Some(worker) = self.workers.get(&uid) {
            worker.mailbox.tell(|order| {
                if order.wish == Wish::Run {
                    order.wish = Wish::Fail(failure);
                } else if let Some(grace) = failure.grace {
                    let end = now + grace;
                    order.end_by = Some(order.end_by.map_or(end, |before| before.min(end)));
                }
            });
        }
    }

    /// Notes what a pod that gets a worker is promised.
    pub(super) fn note(&self, pod: &Arc<Pod>, wish: &Wish) {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let over = PodPhase::terminal(phase).is_some();
        if matches!(wish, Wish::Run | Wish::Fail(_) | Wish::Delete) && !over {
            // Of a pod from before a restart, what it asks for beyond that is not promised yet.
            let promised = Resize::new(pod).allocated_pod(pod);
            self.shared.keeper.take(promised);
            // After a restart what it had is in the file; if that is lost, it gets others.
            self.shared.cpus.assign(pod).ok();
        }
    }
}
