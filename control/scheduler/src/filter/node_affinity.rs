//! `spec.nodeSelector` and required node affinity.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Pod};
use swiftlet_proto::selector::{Operator, Requirement};

use crate::framework::{Cycle, Filter, Rejection};
use crate::node_info::NodeInfo;

pub(crate) struct NodeAffinity;

type Labels = BTreeMap<String, String>;

impl Filter for NodeAffinity {
    fn filter(&self, _cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
        if selects(pod, node) {
            return Ok(());
        }
        let reason = "node(s) didn't match Pod's node affinity/selector";
        Err(Rejection::new("NodeAffinity", reason))
    }
}

fn selects(pod: &Pod, node: &NodeInfo) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let none = Labels::new();
    let labels = node.labels().unwrap_or(&none);
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| labels.get(key) == Some(value)) {
        return false;
    }
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| {
            affinity
                .required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let Some(required) = required else {
        return true;
    };
    required
        .node_selector_terms
        .iter()
        .any(|term| term_selects(term, labels, node.name()))
}

/// Terms are alternatives; a term without requirements selects nothing.
fn term_selects(term: &NodeSelectorTerm, labels: &Labels, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let named = Labels::from([("metadata.name".to_owned(), name.to_owned())]);
    expressions
        .iter()
        .all(|requirement| holds(requirement, labels))
        && fields.iter().all(|requirement| holds(requirement, &named))
}

fn holds(requirement: &NodeSelectorRequirement, labels: &Labels) -> bool {
    let values = requirement.values.clone().unwrap_or_default();
    let bound = values.first().and_then(|value| value.parse::<i64>().ok());
    let operator = match (requirement.operator.as_str(), bound) {
        ("In", _) => Operator::In(values),
        ("NotIn", _) => Operator::NotIn(values),
        ("Exists", _) => Operator::Exists,
        ("DoesNotExist", _) => Operator::DoesNotExist,
        ("Gt", Some(bound)) => Operator::GreaterThan(bound),
        ("Lt", Some(bound)) => Operator::LessThan(bound),
        // The API refuses everything else.
        _ => return false,
    };
    Requirement {
        key: requirement.key.clone(),
        operator,
    }
    .matches(labels)
}
