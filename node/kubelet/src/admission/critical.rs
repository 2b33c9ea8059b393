//! Pods that the node cannot do without (`pkg/kubelet/types/pod_update.go` of Kubernetes).

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::sources::{is_mirror, is_static};

/// From this priority on a pod is critical (`SystemCriticalPriority`: twice the highest that a user
/// may define).
pub const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Whether the node makes room for it, and never evicts it.
pub fn is_critical(pod: &Pod) -> bool {
    is_static(pod) || is_mirror(pod) || priority(pod) >= SYSTEM_CRITICAL_PRIORITY
}

/// `spec.priority`; a pod without one has 0.
pub(crate) fn priority(pod: &Pod) -> i32 {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.priority).unwrap_or_default()
}
