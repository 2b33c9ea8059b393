//! The one owner of the CPUs' state, and the task that brings it to disk.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_proto::pod::is_sidecar;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cgroups::{pod_level, qos_class};
use crate::cpu_manager::allocate::choose;
use crate::cpu_manager::state::{CpuError, CpuState};
use crate::cpu_manager::{Cpu, CpuManagerOptions, CpuPolicy, CpuSet};
use crate::resources::container_requests;
use crate::shared::Shared;

/// Name of the checkpoint, kubelet's own.
const STATE: &str = "cpu_manager_state";
/// How soon a state is written again that could not be.
const AGAIN: Duration = Duration::from_secs(1);
/// Thousandths in one CPU.
const MILLI: i64 = 1000;

/// Kept once for the node.
pub(crate) struct Cpus {
    policy: CpuPolicy,
    state: Mutex<CpuState>,
    /// Grows with each change of who has what.
    changed: watch::Sender<u64>,
    /// The change that is on disk.
    saved: watch::Sender<u64>,
}

impl Cpus {
    /// `reserved_milli`: what system and agents need, if the CPUs are not named one by one.
    pub(crate) fn new(options: &CpuManagerOptions, cpus: Vec<Cpu>, reserved_milli: i64) -> Self {
        let all: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
        let count =
            usize::try_from(reserved_milli.saturating_add(MILLI - 1) / MILLI).unwrap_or_default();
        let reserved = if options.reserved.is_empty() {
            choose(&cpus, &all, count).unwrap_or(all)
        } else {
            options.reserved.clone()
        };
        let policy = if cpus.is_empty() {
            CpuPolicy::None
        } else {
            options.policy
        };
        Self {
            policy,
            state: Mutex::new(CpuState::new(cpus, reserved)),
            changed: watch::Sender::new(0),
            saved: watch::Sender::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, CpuState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_static(&self) -> bool {
        self.policy == CpuPolicy::Static
    }

    /// Tells of changes of who has what.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Gives a new pod's containers the CPUs that are to be theirs alone.
    pub(crate) fn assign(&self, pod: &Pod) -> Result<(), CpuError> {
        if !self.is_static() {
            return Ok(());
        }
        let wanted = exclusive_requests(pod);
        if wanted.is_empty() {
            return Ok(());
        }
        let changed = self.state().assign(&PodKey::of(pod).uid, &wanted)?;
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
        Ok(())
    }

    /// The pod needs nothing any more.
    pub(crate) fn release(&self, pod: &PodUid) {
        let had = self.state().release(pod);
        if had {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Only these pods are there.
    pub(crate) fn retain(&self, is_there: impl Fn(&PodUid) -> bool) {
        let gone = self.state().retain(is_there);
        if gone {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// The CPUs on which a container shall run; empty: all.
    pub(crate) fn cpuset(&self, pod: &PodUid, container: &str) -> String {
        if !self.is_static() {
            return String::new();
        }
        let state = self.state();
        if let Some(own) = state.of(pod, container) {
            return own.to_string();
        }
        // An init container runs before the others: it may use what will be theirs.
        let pods = state.of_pod(pod);
        let set = if pods.is_empty() {
            state.shared()
        } else {
            pods
        };
        set.to_string()
    }

    /// Waits until what this pod has is on disk: a container that runs on CPUs that nobody
    /// remembers could get a second owner after a crash.
    pub(crate) async fn settled(&self, pod: &PodUid) {
        if !self.state().is_owner(pod) {
            return;
        }
        let wanted = *self.changed.borrow();
        let mut saved = self.saved.subscribe();
        saved.wait_for(|saved| *saved >= wanted).await.ok();
    }

    /// Before anything is taken: who had what when the program ended.
    pub(crate) async fn load(&self, shared: &Shared) {
        if !self.is_static() {
            return;
        }
        match shared.doors.checkpoints.load(STATE).await {
            Ok(Some(content)) => {
                if !self.state().take_file(&content, self.policy.as_str()) {
                    tracing::warn!("the CPU manager's state does not fit and begins anew");
                }
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the CPU manager's state cannot be read"),
        }
    }
}

/// Brings each change to disk until `shutdown`.
pub(crate) async fn save(shared: Arc<Shared>, shutdown: CancellationToken) {
    let cpus = &shared.cpus;
    if !cpus.is_static() {
        return;
    }
    let mut changed = cpus.changes();
    let saving = async {
        loop {
            let number = *changed.borrow_and_update();
            let content = cpus.state().to_file(cpus.policy.as_str());
            match shared.doors.checkpoints.save(STATE, &content).await {
                Ok(()) => {
                    cpus.saved.send_replace(number);
                    if changed.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the CPU manager's state was not written");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(saving).await;
}

/// Containers of a Guaranteed pod that ask for whole CPUs.
fn exclusive_requests(pod: &Pod) -> Vec<(String, usize)> {
    let spec = pod.spec.as_ref();
    // Kubelet's static policy does not serve what pods ask for as a whole either.
    let whole = spec.and_then(pod_level).is_some();
    if whole || qos_class(pod) != QosClass::Guaranteed {
        return Vec::new();
    }
    let all = spec.into_iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        init.filter(|one| is_sidecar(one)).chain(&spec.containers)
    });
    all.filter_map(|container| {
        let milli = container_requests(container).cpu_milli.unwrap_or_default();
        let whole = milli > 0 && milli % MILLI == 0;
        let count = usize::try_from(milli / MILLI).ok()?;
        whole.then(|| (container.name.clone(), count))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ResourceRequirements;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;
    use crate::testing::stand::pod;

    fn guaranteed(uid: &str, cpu: &str) -> Pod {
        let mut pod = pod(uid);
        let list = [("cpu", cpu), ("memory", "1Mi")]
            .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
            limits: Some(list.clone().into()),
            requests: Some(list.into()),
            ..ResourceRequirements::default()
        });
        pod
    }

    fn cpus(policy: CpuPolicy) -> Cpus {
        let cpu = |id| Cpu {
            id,
            core: id,
            socket: 0,
        };
        let options = CpuManagerOptions {
            policy,
            reserved: CpuSet::default(),
        };
        Cpus::new(&options, (0..4).map(cpu).collect(), 500)
    }

    #[test]
    fn whole_cpus_are_exclusive_and_the_others_share_the_rest() {
        let cpus = cpus(CpuPolicy::Static);
        cpus.assign(&guaranteed("a", "2")).unwrap();
        cpus.assign(&guaranteed("b", "1500m")).unwrap();
        assert_eq!(cpus.cpuset(&"a".into(), "main"), "1-2");
        assert_eq!(cpus.cpuset(&"a".into(), "init"), "1-2");
        assert_eq!(cpus.cpuset(&"b".into(), "main"), "0,3");
        assert!(cpus.assign(&guaranteed("c", "2")).is_err());
        cpus.release(&"a".into());
        assert_eq!(cpus.cpuset(&"b".into(), "main"), "0-3");
    }

    #[test]
    fn without_the_policy_nobody_is_bound() {
        let cpus = cpus(CpuPolicy::None);
        cpus.assign(&guaranteed("a", "2")).unwrap();
        assert_eq!(cpus.cpuset(&"a".into(), "main"), "");
    }
}
