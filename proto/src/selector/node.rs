//! Selectors of nodes: by their labels, and by their name as a field.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

use super::{Operator, Requirement};

type Labels = BTreeMap<String, String>;

/// Whether the selector selects the node of this name with these labels. Terms are alternatives;
/// one without requirements selects nothing.
pub fn selects_node(selector: &NodeSelector, labels: &Labels, name: &str) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| term_selects(term, labels, name))
}

fn term_selects(term: &NodeSelectorTerm, labels: &Labels, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let named = Labels::from([("metadata.name".to_owned(), name.to_owned())]);
    let all = |requirements: &[NodeSelectorRequirement], labels: &Labels| {
        requirements.iter().all(|one| holds(one, labels))
    };
    let is_empty = expressions.is_empty() && fields.is_empty();
    !is_empty && all(expressions, labels) && all(fields, &named)
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
    let key = requirement.key.clone();
    Requirement { key, operator }.matches(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn selects(terms: &serde_json::Value) -> bool {
        let selector = json!({"nodeSelectorTerms": terms});
        let selector = serde_json::from_value(selector).unwrap();
        let labels = Labels::from([("zone".to_owned(), "3".to_owned())]);
        selects_node(&selector, &labels, "n1")
    }

    #[test]
    fn terms_are_alternatives_whose_requirements_all_hold() {
        let here = json!({"key": "zone", "operator": "In", "values": ["2", "3"]});
        let there = json!({"key": "zone", "operator": "NotIn", "values": ["3"]});
        let high = json!({"key": "zone", "operator": "Gt", "values": ["2"]});
        let name = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
        assert!(selects(&json!([{"matchExpressions": [here, high]}])));
        assert!(!selects(&json!([{"matchExpressions": [here, there]}])));
        assert!(selects(
            &json!([{"matchExpressions": [there]}, {"matchFields": [name]}])
        ));
        assert!(!selects(&json!([{}])) && !selects(&json!([])));
        let unknown = json!({"key": "zone", "operator": "Like", "values": ["3"]});
        assert!(!selects(&json!([{"matchExpressions": [unknown]}])));
    }
}
