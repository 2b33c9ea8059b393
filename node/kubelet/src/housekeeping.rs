//! Finds what is left of pods that nobody wants: in the runtime, in cgroups, in folders of volumes
//! and of logs.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_model::ids::{PodKey, PodUid};

use crate::housekeeping::logs::{RunningLog, running_logs};
use crate::shared::Shared;

pub(crate) mod logs;

/// What a look at the node has found.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// All pods of which something is on the node.
    pub(crate) found: BTreeMap<PodUid, PodKey>,
    /// Pods in the runtime; `None` if it could not be asked.
    pub(crate) in_runtime: Option<Vec<PodUid>>,
    /// Logs of containers that run; `None` as well.
    pub(crate) running: Option<Vec<RunningLog>>,
}

/// Looks at everything. What cannot be read is left for the next time.
pub(crate) async fn sweep(shared: Arc<Shared>) -> Sweep {
    let doors = &shared.doors;
    let (runtime, cgroups, volumes, logs) = tokio::join!(
        doors.runtime.list_pods(),
        doors.cgroups.pods(),
        doors.volumes.pods_on_disk(),
        doors.logs.pods()
    );
    let mut sweep = Sweep::default();
    let nameless = |uid: PodUid| PodKey {
        namespace: String::new(),
        name: String::new(),
        uid,
    };
    match cgroups {
        Ok(all) => sweep
            .found
            .extend(all.into_iter().map(|uid| (uid.clone(), nameless(uid)))),
        Err(error) => tracing::debug!(%error, "cgroups of pods cannot be listed"),
    }
    match volumes {
        Ok(all) => sweep
            .found
            .extend(all.into_iter().map(|uid| (uid.clone(), nameless(uid)))),
        Err(error) => tracing::debug!(%error, "folders of pods cannot be listed"),
    }
    match logs {
        Ok(all) => sweep
            .found
            .extend(all.into_iter().map(|pod| (pod.uid.clone(), pod))),
        Err(error) => tracing::debug!(%error, "log folders of pods cannot be listed"),
    }
    match runtime {
        Ok(all) => {
            sweep.running = Some(running_logs(&all, &shared.log_root));
            // The runtime knows names as well.
            sweep.in_runtime = Some(all.iter().map(|one| one.pod.uid.clone()).collect());
            sweep
                .found
                .extend(all.into_iter().map(|one| (one.pod.uid.clone(), one.pod)));
        }
        Err(error) => tracing::debug!(%error, "pods of the runtime cannot be listed"),
    }
    sweep
}

/// Grace period of a pod of which nothing else is known: whatever it had may have passed long ago
/// (`SyncTerminatingRuntimePod` in `pkg/kubelet/kubelet.go`).
const ORPHAN_GRACE_S: i64 = 1;

/// The object of a pod of which only the key is known: enough to end it.
pub(crate) fn stand_in(key: PodKey) -> Arc<Pod> {
    Arc::new(Pod {
        metadata: ObjectMeta {
            namespace: Some(key.namespace),
            name: Some(key.name),
            uid: Some(key.uid.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            termination_grace_period_seconds: Some(ORPHAN_GRACE_S),
            ..PodSpec::default()
        }),
        status: None,
    })
}
