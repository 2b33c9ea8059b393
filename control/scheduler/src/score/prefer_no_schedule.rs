//! A node with fewer PreferNoSchedule taints that the pod does not tolerate is the better one.

use k8s_openapi::api::core::v1::Pod;

use crate::filter::tolerates;
use crate::framework::{Cycle, SCORE_MAX, Score};
use crate::node_info::NodeInfo;

pub(crate) struct PreferNoSchedule;

impl Score for PreferNoSchedule {
    fn score(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> i64 {
        let taints = node.taints().iter();
        let soft = taints.filter(|taint| taint.effect == "PreferNoSchedule");
        let count = soft.filter(|taint| !tolerates(pod, taint)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    fn normalize(&self, scores: &mut [i64]) {
        let most = scores.iter().copied().max().unwrap_or(0);
        for score in scores {
            let share = if most == 0 {
                0
            } else {
                *score * SCORE_MAX / most
            };
            *score = SCORE_MAX - share;
        }
    }
}
