//! Whether this node takes a pod. Pure.

use k8s_openapi::api::core::v1::Pod;

use crate::resources::pod_requests;

mod unserved;

pub use unserved::unserved;

/// Why a pod was not taken; it becomes Failed with these words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`.
    pub reason: String,
    /// `status.message`, after `Pod was rejected: `.
    pub message: String,
}

/// What the node can give to pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Thousandths of a CPU.
    pub cpu_milli: i64,
    /// Bytes.
    pub memory_bytes: i64,
    /// Number of pods.
    pub pods: usize,
}

/// Decides about `pod`, beside the pods that the node has taken and that have not ended.
pub fn admit<'a>(
    pod: &Pod,
    taken: impl Iterator<Item = &'a Pod>,
    node_name: &str,
    allocatable: &Allocatable,
) -> Result<(), Rejection> {
    matches_node(pod, node_name)?;
    let fields = unserved(pod);
    if !fields.is_empty() {
        return Err(rejection(
            "UnexpectedAdmissionError",
            format!("this node does not serve: {}", fields.join(", ")),
        ));
    }
    fits(pod, taken, allocatable)
}

fn matches_node(pod: &Pod, node_name: &str) -> Result<(), Rejection> {
    let spec = pod.spec.as_ref();
    if spec.and_then(|spec| spec.node_name.as_deref()) != Some(node_name) {
        return Err(rejection(
            "NodeName",
            "Predicate NodeName failed".to_owned(),
        ));
    }
    let os = spec
        .and_then(|spec| spec.os.as_ref())
        .map_or("linux", |os| os.name.as_str());
    if os != "linux" {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(rejection("PodOSNotSupported", message.to_owned()));
    }
    Ok(())
}

fn fits<'a>(
    pod: &Pod,
    taken: impl Iterator<Item = &'a Pod>,
    allocatable: &Allocatable,
) -> Result<(), Rejection> {
    let (mut pods, mut cpu, mut memory) = (0_usize, 0_i64, 0_i64);
    for other in taken {
        let requests = pod_requests(other);
        pods += 1;
        cpu = cpu.saturating_add(requests.cpu_milli.unwrap_or_default());
        memory = memory.saturating_add(requests.memory_bytes.unwrap_or_default());
    }
    let wanted = pod_requests(pod);
    let pods_max = i64::try_from(allocatable.pods).unwrap_or(i64::MAX);
    let pods = i64::try_from(pods).unwrap_or(i64::MAX);
    let checks = [
        ("pods", 1, pods, pods_max),
        (
            "cpu",
            wanted.cpu_milli.unwrap_or_default(),
            cpu,
            allocatable.cpu_milli,
        ),
        (
            "memory",
            wanted.memory_bytes.unwrap_or_default(),
            memory,
            allocatable.memory_bytes,
        ),
    ];
    for (resource, requested, used, capacity) in checks {
        // Who asks for nothing needs no room.
        if requested > 0 && used.saturating_add(requested) > capacity {
            return Err(rejection(
                &format!("OutOf{resource}"),
                format!(
                    "Node didn't have enough resource: {resource}, requested: {requested}, \
                     used: {used}, capacity: {capacity}"
                ),
            ));
        }
    }
    Ok(())
}

fn rejection(reason: &str, message: String) -> Rejection {
    Rejection {
        reason: reason.to_owned(),
        message,
    }
}

#[cfg(test)]
mod tests;
