//! Taints keep pods away that do not tolerate them. Nodes that are not ready are tainted, so this
//! is also what keeps pods off them.

use k8s_openapi::api::core::v1::{Pod, Taint, Toleration};

use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::NodeInfo;

pub(crate) struct TaintToleration;

impl Filter for TaintToleration {
    fn filter(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        let repels = |taint: &&Taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
        let untolerated = node
            .taints()
            .iter()
            .filter(repels)
            .find(|taint| !tolerates(pod, taint));
        let Some(taint) = untolerated else {
            return Ok(());
        };
        let value = taint.value.as_deref().unwrap_or_default();
        let reason = format!("node(s) had untolerated taint {{{}: {value}}}", taint.key);
        Err(Rejection::new("TaintToleration", reason))
    }
}

/// Whether one of the pod's tolerations covers the taint.
pub(crate) fn tolerates(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_ref());
    tolerations
        .into_iter()
        .flatten()
        .any(|toleration| covers(toleration, taint))
}

fn covers(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let effect = text(&toleration.effect);
    if !effect.is_empty() && effect != taint.effect {
        return false;
    }
    let key = text(&toleration.key);
    if !key.is_empty() && key != taint.key {
        return false;
    }
    match toleration.operator.as_deref().unwrap_or_default() {
        "Exists" => true,
        // An empty key with Equal is refused by the API, and covers nothing here.
        "" | "Equal" => !key.is_empty() && text(&toleration.value) == text(&taint.value),
        _ => false,
    }
}
