//! The emptier node is the better one.

use k8s_openapi::api::core::v1::Pod;

use crate::framework::{Cycle, SCORE_MAX, Score};
use crate::node_info::{NodeInfo, PodUse};

pub(crate) struct LeastAllocated;

impl Score for LeastAllocated {
    fn score(&self, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> i64 {
        match cycle.get::<PodUse>() {
            Some(pod) => emptiness(pod, node),
            None => emptiness(&PodUse::of(pod), node),
        }
    }
}

/// The mean of what would be left of CPU and of memory, in hundredths.
fn emptiness(pod: &PodUse, node: &NodeInfo) -> i64 {
    let mut sum = 0;
    let mut resources = 0;
    for name in ["cpu", "memory"] {
        let capacity = node.allocatable().get(name);
        if capacity == 0 {
            continue;
        }
        let used = node
            .counted()
            .get(name)
            .saturating_add(pod.counted.get(name));
        let left = i128::from(capacity.saturating_sub(used).max(0));
        let share = left * i128::from(SCORE_MAX) / i128::from(capacity);
        sum += i64::try_from(share).unwrap_or(SCORE_MAX);
        resources += 1;
    }
    if resources == 0 { 0 } else { sum / resources }
}
