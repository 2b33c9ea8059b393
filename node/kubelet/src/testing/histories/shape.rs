//! The pods of a history.

use k8s_openapi::api::core::v1::{Container, ExecAction, Lifecycle, LifecycleHandler, Pod, Probe};

use crate::testing::stand::pod;

/// What pods are like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) policy: &'static str,
    /// Sidecars with an init container between them.
    pub(super) sidecars: bool,
    /// Lifecycle hooks and probes.
    pub(super) hooks: bool,
}

/// A pod of that shape.
pub(super) fn shaped(uid: &str, shape: Shape) -> Pod {
    let mut pod = pod(uid);
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some(shape.policy.to_owned());
    if shape.sidecars {
        let init = [("first", true), ("once", false), ("second", true)];
        let container = |(name, sidecar): (&str, bool)| Container {
            name: name.to_owned(),
            restart_policy: sidecar.then(|| "Always".to_owned()),
            ..spec.containers[0].clone()
        };
        spec.init_containers = Some(init.map(container).into());
    }
    if shape.hooks {
        let main = &mut spec.containers[0];
        main.liveness_probe = Some(probe());
        main.lifecycle = Some(hooks());
        if let Some(first) = spec.init_containers.iter_mut().flatten().next() {
            first.startup_probe = Some(probe());
            first.lifecycle = Some(hooks());
        }
    }
    pod
}

fn command() -> ExecAction {
    ExecAction {
        command: Some(vec!["true".to_owned()]),
    }
}

fn probe() -> Probe {
    Probe {
        exec: Some(command()),
        period_seconds: Some(7),
        failure_threshold: Some(2),
        ..Probe::default()
    }
}

fn hooks() -> Lifecycle {
    let handler = LifecycleHandler {
        exec: Some(command()),
        ..LifecycleHandler::default()
    };
    Lifecycle {
        post_start: Some(handler.clone()),
        pre_stop: Some(handler),
        stop_signal: None,
    }
}
