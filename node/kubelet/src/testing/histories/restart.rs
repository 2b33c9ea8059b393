//! What a new start of the agent must leave as it is: containers that run, and pods that are ready.

use k8s_openapi::api::core::v1::PodStatus;
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::ContainerState;

use crate::testing::histories::Api;
use crate::testing::histories::shape::Shape;
use crate::testing::stand::Stand;

/// Main containers that nobody has a reason to end, and their pods.
#[derive(Debug, Default)]
pub(super) struct LeftAlone {
    running: Vec<ContainerId>,
    /// Pods among them that are shown as ready.
    ready: Vec<String>,
    /// How many statuses had been told.
    told: usize,
}

impl LeftAlone {
    /// Probes may end a container at any time, and so may a new image.
    pub(super) fn of(stand: &Stand, api: &Api, shape: Shape) -> Self {
        let mut left = Self {
            told: stand.control_plane.told.lock().unwrap().statuses.len(),
            ..Self::default()
        };
        if shape.hooks {
            return left;
        }
        for index in api
            .pods
            .keys()
            .filter(|index| !api.deleting.contains_key(*index))
        {
            let uid = api.uid(*index).unwrap_or_default();
            if api.edited.contains(&uid) || api.lost.contains(&uid) {
                continue;
            }
            let pod = stand
                .runtime
                .state
                .lock()
                .unwrap()
                .pod(&uid.as_str().into());
            let mut all = pod.into_iter().flat_map(|pod| pod.containers);
            let main =
                all.find(|one| one.name.as_str() == "main" && one.state == ContainerState::Running);
            if let Some(main) = main {
                left.running.push(main.id);
                let status = stand.control_plane.status(&uid).unwrap_or_default();
                left.ready.extend(is_ready(&status).then_some(uid));
            }
        }
        left
    }

    /// Some time after the new start.
    pub(super) fn check(&self, stand: &Stand) {
        let state = stand.runtime.state.lock().unwrap();
        for id in &self.running {
            let mut all = state.containers.iter();
            let runs = all.any(|one| one.id == *id && one.state == ContainerState::Running);
            assert!(runs, "{id} ran, and was ended by a new start of the agent");
        }
        let told = stand.control_plane.told.lock().unwrap();
        for (uid, status) in told.statuses.iter().skip(self.told) {
            let was_ready = self.ready.iter().any(|ready| ready == uid.as_str());
            assert!(
                !was_ready || is_ready(status),
                "{uid} was ready, and is not any more"
            );
        }
    }
}

fn is_ready(status: &PodStatus) -> bool {
    let mut all = status.conditions.iter().flatten();
    all.any(|one| one.type_ == "Ready" && one.status == "True")
}
