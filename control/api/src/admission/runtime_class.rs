//! What a pod's runtime costs, and where it is to be had (Kubernetes:
//! `plugin/pkg/admission/runtimeclass`).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, resources};

use super::Admission;
use crate::strategy::{Amount, text_at};

/// What matters of a class here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Class {
    overhead: Option<Overhead>,
    scheduling: Option<Scheduling>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Overhead {
    pod_fixed: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Scheduling {
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
}

/// Merges what the class says into the pod.
pub(super) fn admit(admission: Admission<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let name = text_at(pod, "/spec/runtimeClassName").to_owned();
    let class = if name.is_empty() {
        Class::default()
    } else {
        let found = admission.find::<Class>((&resources::RUNTIME_CLASSES, "", &name));
        let missing =
            || admission.refuse(&format!("pod rejected: RuntimeClass {name:?} not found"));
        found.ok_or_else(missing)?
    };
    let spec = &mut pod["spec"];
    set_overhead(admission, spec, class.overhead)?;
    match class.scheduling {
        Some(scheduling) => set_scheduling(admission, spec, scheduling),
        None => Ok(()),
    }
}

fn set_overhead(
    admission: Admission<'_>,
    spec: &mut Value,
    overhead: Option<Overhead>,
) -> Result<(), ApiError> {
    let given = spec["overhead"].as_object().filter(|map| !map.is_empty());
    match (given, overhead) {
        (Some(_), None) => Err(admission.refuse(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        )),
        (Some(given), Some(defined)) if !same(given, &defined.pod_fixed) => Err(admission
            .refuse("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")),
        (None, Some(defined)) if !defined.pod_fixed.is_empty() => {
            spec["overhead"] = json!(defined.pod_fixed);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn same(given: &serde_json::Map<String, Value>, defined: &BTreeMap<String, String>) -> bool {
    let amount = |text: &str| Amount::parse(text);
    given.len() == defined.len()
        && given.iter().all(|(name, value)| {
            let (given, defined) = (
                value.as_str().and_then(amount),
                defined.get(name).and_then(|text| amount(text)),
            );
            matches!((given, defined), (Some(a), Some(b)) if a.compare(b).is_eq())
        })
}

fn set_scheduling(
    admission: Admission<'_>,
    spec: &mut Value,
    scheduling: Scheduling,
) -> Result<(), ApiError> {
    for (key, value) in scheduling.node_selector {
        match spec["nodeSelector"].get(&key).and_then(Value::as_str) {
            Some(own) if own != value => {
                return Err(admission.refuse(&format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; \
                     pod.spec.nodeSelector[{key}] = {own}"
                )));
            }
            _ => spec["nodeSelector"][key] = value.into(),
        }
    }
    for toleration in scheduling.tolerations {
        if !spec["tolerations"].is_array() {
            spec["tolerations"] = json!([]);
        }
        if let Some(own) = spec["tolerations"].as_array_mut()
            && !own.contains(&toleration)
        {
            own.push(toleration);
        }
    }
    Ok(())
}
