//! Labels and annotations that kubelet puts on sandboxes and containers.
//! Source: `pkg/kubelet/types/labels.go` and `kuberuntime/labels.go` of Kubernetes.

/// Name of the pod.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// Namespace of the pod.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// UID of the pod.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// Name of the container.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// Hash of the container's spec.
pub const CONTAINER_HASH: &str = "io.kubernetes.container.hash";
/// Restart count of the container.
pub const CONTAINER_RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Grace period of the pod, in seconds.
pub const POD_TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";
