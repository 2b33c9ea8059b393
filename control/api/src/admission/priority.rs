//! Priorities of pods come from classes (Kubernetes: `plugin/pkg/admission/priority`).

use serde::Deserialize;
use serde_json::Value;
use swiftlet_client::api::{ApiError, resources};

use super::Admission;
use super::lookup::Metadata;
use crate::strategy::text_at;

/// What matters of a class here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Class {
    metadata: Metadata,
    value: i64,
    global_default: bool,
    preemption_policy: Option<String>,
}

/// Sets the pod's priority from its class, or from the default one.
pub(super) fn admit_pod(admission: Admission<'_>, pod: &mut Value) -> Result<(), ApiError> {
    let name = text_at(pod, "/spec/priorityClassName").to_owned();
    let class = if name.is_empty() {
        default_class(admission)
    } else {
        let class = admission.find::<Class>((&resources::PRIORITY_CLASSES, "", &name));
        let missing = || admission.refuse(&format!("no PriorityClass with name {name} was found"));
        Some(class.ok_or_else(missing)?)
    };
    let class = class.unwrap_or_default();
    let policy = class
        .preemption_policy
        .as_deref()
        .unwrap_or("PreemptLowerPriority");
    let spec = &mut pod["spec"];
    if let Some(given) = spec["priority"].as_i64()
        && given != class.value
    {
        return Err(admission.refuse(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority \
             admission controller computed {} from the given PriorityClass name",
            class.value
        )));
    }
    if let Some(given) = spec["preemptionPolicy"].as_str()
        && given != policy
    {
        return Err(admission.refuse(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; \
             priority admission controller computed {policy} from the given PriorityClass name"
        )));
    }
    if name.is_empty() && !class.metadata.name.is_empty() {
        spec["priorityClassName"] = class.metadata.name.as_str().into();
    }
    spec["priority"] = class.value.into();
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

/// The class of pods that name none; of several the one with the least value.
fn default_class(admission: Admission<'_>) -> Option<Class> {
    admission
        .all_with::<Class>(&resources::PRIORITY_CLASSES, "\"globalDefault\":true")
        .into_iter()
        .filter(|class| class.global_default)
        .min_by_key(|class| class.value)
}

/// There is one default class at most.
pub(super) fn admit_class(admission: Admission<'_>, class: &Value) -> Result<(), ApiError> {
    if class["globalDefault"].as_bool() != Some(true) {
        return Ok(());
    }
    let name = &admission.target.name;
    match default_class(admission) {
        Some(other) if other.metadata.name != *name => Err(admission.refuse(&format!(
            "PriorityClass {} is already marked as default. Only one default can exist",
            other.metadata.name
        ))),
        _ => Ok(()),
    }
}
