//! What must be known before a sandbox is made: its name, its DNS, who runs it.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use swiftlet_model::control_plane::{ControlPlaneError, ObjectRef, RefKind};
use swiftlet_model::events::EventKind;
use swiftlet_model::runtime::{RuntimeError, SandboxConfig};

use crate::kuberuntime::config::dns::pod_dns;
use crate::kuberuntime::config::hostname::{FqdnTooLong, kernel_hostname};
use crate::shared::Shared;

/// Why a pod has no sandbox.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// Its name.
    #[error(transparent)]
    Hostname(#[from] FqdnTooLong),
    /// There is no such RuntimeClass.
    #[error("failed to get sandbox runtime: RuntimeClass \"{0}\" not found")]
    NoRuntimeClass(String),
    /// The RuntimeClass cannot be read.
    #[error("failed to lookup RuntimeClass {name}: {cause}")]
    RuntimeClass {
        /// Its name.
        name: String,
        /// Why.
        cause: String,
    },
    /// The runtime did not make it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

impl SandboxError {
    /// Whether the runtime did not answer in time.
    pub(crate) fn is_timeout(&self) -> bool {
        matches!(self, Self::Runtime(RuntimeError::Timeout { .. }))
    }

    /// Whether the runtime may have made it all the same, or its name may be taken.
    pub(crate) fn may_exist(&self) -> bool {
        match self {
            Self::Runtime(error) => {
                error.is_retryable() || matches!(error, RuntimeError::AlreadyExists { .. })
            }
            _ => false,
        }
    }
}

/// The RuntimeClass that the pod names.
pub(crate) fn runtime_class(pod: &Pod) -> Option<ObjectRef> {
    let name = pod.spec.as_ref()?.runtime_class_name.clone()?;
    (!name.is_empty()).then_some(ObjectRef {
        kind: RefKind::RuntimeClass,
        namespace: String::new(),
        name,
    })
}

/// Completes the sandbox's configuration, and tells the user what was left out of its DNS.
pub(crate) async fn prepare(
    shared: &Shared,
    pod: &Pod,
    mut config: SandboxConfig,
) -> Result<SandboxConfig, SandboxError> {
    config.hostname = kernel_hostname(pod, &shared.pods.cluster_domain)?;
    if let Some(class) = runtime_class(pod) {
        let found = shared.doors.control_plane.object(&class).await;
        config.runtime_handler = handler(class.name, found)?;
    }
    let resolv_conf = shared.node.borrow().resolv_conf.clone();
    let (_, warnings) = pod_dns(pod, &shared.pods, resolv_conf.as_deref());
    for (reason, message) in warnings {
        let recorder = &shared.recorder;
        recorder.pod(pod, None, EventKind::Warning, reason, message);
    }
    Ok(config)
}

fn handler(
    name: String,
    found: Result<Option<impl AsRef<[u8]>>, ControlPlaneError>,
) -> Result<String, SandboxError> {
    let object = match found {
        Ok(Some(object)) => object,
        Ok(None) => return Err(SandboxError::NoRuntimeClass(name)),
        Err(error) => {
            let cause = error.to_string();
            return Err(SandboxError::RuntimeClass { name, cause });
        }
    };
    match serde_json::from_slice::<RuntimeClass>(object.as_ref()) {
        Ok(class) => Ok(class.handler),
        Err(error) => Err(SandboxError::RuntimeClass {
            name,
            cause: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_class_names_who_runs_the_pod() {
        let class = r#"{"metadata":{"name":"x"},"handler":"runsc"}"#;
        let found = handler("x".into(), Ok(Some(class)));
        assert_eq!(found.unwrap(), "runsc");
        let text =
            |found: Result<Option<&str>, _>| handler("x".into(), found).unwrap_err().to_string();
        assert_eq!(
            text(Ok(None)),
            "failed to get sandbox runtime: RuntimeClass \"x\" not found"
        );
        assert!(
            text(Err(ControlPlaneError::Disconnected))
                .starts_with("failed to lookup RuntimeClass x")
        );
        assert!(text(Ok(Some("["))).starts_with("failed to lookup RuntimeClass x"));
    }

    #[test]
    fn only_the_runtimes_own_failures_leave_a_sandbox_behind() {
        let slow = RuntimeError::Timeout {
            call: "RunPodSandbox",
            limit_ms: 1,
        };
        assert!(SandboxError::from(slow).may_exist());
        assert!(!SandboxError::NoRuntimeClass("x".into()).may_exist());
        assert!(!SandboxError::from(FqdnTooLong("x".into())).may_exist());
    }
}
