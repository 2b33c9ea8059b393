//! Ends of containers: what the kernel saw, and what the runtime says of them later.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use swiftlet_model::ids::ContainerId;
use swiftlet_model::lifecycle::KernelExit;
use swiftlet_model::runtime::{ContainerExit, ContainerState, ContainerStatus};

use crate::kuberuntime::history::lost;
use crate::pod_worker::view::View;

/// The kernel's event comes before the runtime has reaped: half a millisecond, so ask after that.
const RECORD_DELAY: Duration = Duration::from_millis(2);
/// Longest wait before the runtime is asked again for a record.
const RECORD_DELAY_MAX: Duration = Duration::from_secs(1);
/// Times the runtime is asked for the record of an end that the kernel has reported; all in all 3
/// s.
const RECORD_TRIES_MAX: u32 = 12;

/// The reason that a runtime gives for an end that it has not seen.
const UNSEEN: &str = "Unknown";

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordWanted {
    tries: u32,
    not_before: Instant,
}

impl View {
    /// The kernel saw a container end. False if that was known.
    pub(crate) fn died(
        &mut self,
        id: &ContainerId,
        exit: Option<KernelExit>,
        at: Timestamp,
        now: Instant,
    ) -> bool {
        let Some(container) = self.container(id) else {
            return false;
        };
        if container.state == ContainerState::Exited {
            return false;
        }
        let Some(exit) = exit else {
            self.want_record(id, now);
            return false;
        };
        container.state = ContainerState::Exited;
        container.exit = Some(ContainerExit {
            code: exit.code,
            oom_killed: exit.oom_killed,
            at,
            reason: exit_reason(exit.code, exit.oom_killed).to_owned(),
            message: String::new(),
        });
        self.want_record(id, now + RECORD_DELAY);
        true
    }

    /// The runtime was told to stop a container and says that it has.
    pub(crate) fn stopped_container(&mut self, id: &ContainerId, now: Instant) {
        if let Some(container) = self.container(id)
            && container.state != ContainerState::Exited
        {
            container.state = ContainerState::Exited;
            self.want_record(id, now);
        }
    }

    fn want_record(&mut self, id: &ContainerId, not_before: Instant) {
        let wanted = RecordWanted {
            tries: 0,
            not_before,
        };
        self.records.entry(id.clone()).or_insert(wanted);
    }

    /// Records to ask for now. Ended containers without an exit code are among them.
    pub(crate) fn records_due(&mut self, now: Instant) -> Vec<ContainerId> {
        for id in std::mem::take(&mut self.unread) {
            self.want_record(&id, now);
        }
        let bare = self.pod.containers.iter();
        let bare = bare.filter(|one| one.state == ContainerState::Exited && one.exit.is_none());
        let bare: Vec<_> = bare.map(|one| one.id.clone()).collect();
        for id in bare {
            self.want_record(&id, now);
        }
        let due = self
            .records
            .iter()
            .filter(|(_, wanted)| wanted.not_before <= now);
        due.map(|(id, _)| id.clone()).collect()
    }

    /// When the next record is to be asked for that is not asked for now.
    pub(crate) fn record_after(&self, now: Instant) -> Option<Instant> {
        let all = self.records.values().map(|wanted| wanted.not_before);
        all.filter(|at| *at > now).min()
    }

    /// Whether all ends are told in full.
    pub(crate) fn has_all_records(&self) -> bool {
        self.records.is_empty() && self.unread.is_empty()
    }

    /// The runtime's record of a container. The kernel's exit code stays: it is the first truth.
    pub(crate) fn recorded(&mut self, record: ContainerStatus, now: Instant) {
        let id = record.id.clone();
        let Some(known) = self.container(&id) else {
            self.records.remove(&id);
            return;
        };
        if record.state != ContainerState::Exited {
            // Either it has not been reaped yet, or the hint was wrong.
            let ended = known.exit.is_some();
            self.ask_again(&id, ended, now);
            return;
        }
        let kernel = known.exit.take();
        let mut exit = record.exit;
        if let (Some(exit), Some(kernel)) = (&mut exit, &kernel) {
            keep_first(kernel, exit);
        }
        known.state = ContainerState::Exited;
        known.exit = exit.or(kernel);
        known.started_at = record.started_at.or(known.started_at);
        if known.exit.is_some() {
            self.records.remove(&id);
        } else {
            self.ask_again(&id, false, now);
        }
    }

    fn ask_again(&mut self, id: &ContainerId, ended: bool, now: Instant) {
        let Some(wanted) = self.records.get_mut(id) else {
            return;
        };
        wanted.tries += 1;
        let wait = RECORD_DELAY * (1 << wanted.tries.min(RECORD_TRIES_MAX));
        wanted.not_before = now + wait.min(RECORD_DELAY_MAX);
        if wanted.tries < RECORD_TRIES_MAX {
            return;
        }
        self.records.remove(id);
        if !ended && let Some(container) = self.container(id) {
            // The runtime insists that it runs: the hint was wrong. Ask for everything.
            container.state = ContainerState::Unknown;
            self.stale = true;
        }
    }

    /// The runtime could not be asked for a record.
    pub(crate) fn record_failed(
        &mut self,
        id: &ContainerId,
        gone: bool,
        now: (Instant, Timestamp),
    ) {
        if !gone {
            if let Some(wanted) = self.records.get_mut(id) {
                wanted.not_before = now.0 + RECORD_DELAY_MAX;
            }
            return;
        }
        self.records.remove(id);
        if let Some(container) = self.container(id)
            && container.exit.is_none()
        {
            *container = lost(container.clone(), now.1);
        }
    }
}

/// What was known first of an end stays. What the runtime adds counts where it has seen that end: a
/// runtime that was away tells of a reason that it does not know, and of the time when it came
/// back.
pub(super) fn keep_first(first: &ContainerExit, told: &mut ContainerExit) {
    let was_seen = told.code == first.code && told.reason != UNSEEN;
    told.code = first.code;
    told.oom_killed |= first.oom_killed;
    if first.oom_killed || !was_seen {
        told.reason.clone_from(&first.reason);
    }
    if !was_seen {
        told.at = first.at;
    }
}

/// `state.terminated.reason`.
fn exit_reason(code: i32, oom_killed: bool) -> &'static str {
    match (oom_killed, code) {
        (true, _) => "OOMKilled",
        (false, 0) => "Completed",
        (false, _) => "Error",
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_model::ids::PodKey;
    use swiftlet_model::runtime::RuntimePod;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1000 + second).unwrap()
    }

    fn running() -> ContainerStatus {
        ContainerStatus {
            id: "c".into(),
            name: "main".into(),
            sandbox: "s".into(),
            attempt: 0,
            state: ContainerState::Running,
            created_at: at(0),
            started_at: Some(at(0)),
            exit: None,
            image: String::new(),
            image_id: String::new(),
            spec_hash: None,
        }
    }

    fn view() -> View {
        let key = PodKey {
            namespace: "default".into(),
            name: "p".into(),
            uid: "u".into(),
        };
        let found = RuntimePod {
            containers: vec![running()],
            ..RuntimePod::empty(key.clone())
        };
        let mut view = View::new(key, at(0), Duration::from_mins(5));
        view.queried(found, at(0));
        view
    }

    fn exit(view: &View) -> ContainerExit {
        view.pod.containers[0].exit.clone().unwrap()
    }

    #[test]
    fn the_kernels_word_about_memory_stays_whatever_the_runtime_says() {
        let (mut view, id, now) = (view(), "c".into(), Instant::now());
        let kernel = KernelExit {
            code: 137,
            signal: 9,
            oom_killed: true,
        };
        assert!(view.died(&id, Some(kernel), at(5), now));
        assert_eq!(exit(&view).reason, "OOMKilled");
        let told = ContainerExit {
            code: 137,
            oom_killed: false,
            at: at(6),
            reason: "Error".into(),
            message: String::new(),
        };
        let record = ContainerStatus {
            state: ContainerState::Exited,
            exit: Some(told),
            ..running()
        };
        view.recorded(record.clone(), now);
        assert_eq!(exit(&view).reason, "OOMKilled");
        assert!(view.has_all_records());
        let again = RuntimePod {
            containers: vec![record],
            ..RuntimePod::empty(view.pod.pod.clone())
        };
        view.queried(again, at(7));
        assert_eq!(exit(&view).reason, "OOMKilled");
    }

    #[test]
    fn a_runtime_that_was_away_changes_nothing_of_an_end_that_the_kernel_saw() {
        for (code, reason) in [(0, "Completed"), (3, "Error"), (255, "Error")] {
            let (mut view, id, now) = (view(), "c".into(), Instant::now());
            let kernel = KernelExit {
                code,
                signal: 0,
                oom_killed: false,
            };
            assert!(view.died(&id, Some(kernel), at(5), now));
            let told = ContainerExit {
                code: 255,
                oom_killed: false,
                at: at(9),
                reason: "Unknown".into(),
                message: String::new(),
            };
            let record = ContainerStatus {
                state: ContainerState::Exited,
                exit: Some(told),
                ..running()
            };
            let expected = (code, reason, at(5));
            let found = RuntimePod {
                containers: vec![record.clone()],
                ..RuntimePod::empty(view.pod.pod.clone())
            };
            view.queried(found, at(9));
            let known = exit(&view);
            assert_eq!((known.code, known.reason.as_str(), known.at), expected);
            view.recorded(record, now);
            let known = exit(&view);
            assert_eq!((known.code, known.reason.as_str(), known.at), expected);
        }
    }

    #[test]
    fn a_container_whose_record_is_gone_has_an_unknown_end() {
        let (mut view, id, now) = (view(), "c".into(), Instant::now());
        assert!(
            !view.died(&id, None, at(5), now),
            "how it ended is not known"
        );
        view.record_failed(&id, true, (now, at(6)));
        let exit = exit(&view);
        assert_eq!(
            (exit.code, exit.reason.as_str()),
            (137, "ContainerStatusUnknown")
        );
    }
}
