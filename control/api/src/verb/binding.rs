//! POST of a pod's `binding`: the scheduler's decision.

use serde_json::{Value, json};
use swiftlet_client::api::ApiError;

use super::Written;
use super::modify::{self, Proposal};
use crate::api::ApiServer;
use crate::decode;
use crate::encode::{metadata_mut, metadata_str};
use crate::error;
use crate::options::WriteOptions;
use crate::registry::FieldError;
use crate::route::Target;

/// Assigns a pod to a node, once.
pub(crate) async fn bind(
    api: &ApiServer,
    target: &Target,
    mut binding: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    decode::expect_kind(&mut binding, "v1", "Binding")?;
    modify::check_namespace(target, metadata_mut(&mut binding))?;
    let node = checked_node(target, &binding)?;
    check_annotations(&binding["metadata"]["annotations"])?;
    modify::modify(api, target, options, |pod| {
        modify::check_uid(target, metadata_str(&binding, "uid"), pod)?;
        let object = bound(target, pod, &node, &binding["metadata"]["annotations"])?;
        let errors = target.resource.strategy.validate(&object);
        if !errors.is_empty() {
            return Err(error::invalid(target.resource, &target.name, &errors));
        }
        Ok(Proposal {
            object,
            based_on: None,
            warnings: Vec::new(),
        })
    })
    .await
}

fn check_annotations(annotations: &Value) -> Result<(), ApiError> {
    let are_texts = match annotations {
        Value::Null => true,
        Value::Object(annotations) => annotations.values().all(Value::is_string),
        _ => false,
    };
    if are_texts {
        return Ok(());
    }
    let why = "Binding in version \"v1\" cannot be handled as a Binding: metadata.annotations must \
               be a map of texts";
    Err(error::bad_request(why))
}

fn checked_node(target: &Target, binding: &Value) -> Result<String, ApiError> {
    let kind = binding["target"]["kind"].as_str().unwrap_or_default();
    let name = binding["target"]["name"].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        let detail = "supported values: \"Node\", \"<empty>\"";
        let not_supported = crate::registry::FieldErrorKind::NotSupported;
        errors.push(FieldError::new(
            not_supported,
            "target.kind",
            kind.into(),
            detail,
        ));
    }
    if name.is_empty() {
        errors.push(FieldError::required("target.name", ""));
    }
    if errors.is_empty() {
        Ok(name.into())
    } else {
        let mut error = error::invalid(target.resource, &target.name, &errors);
        error.0.message = error
            .0
            .message
            .map(|text| text.replacen("Pod ", "Binding ", 1));
        Err(error)
    }
}

fn bound(target: &Target, pod: &Value, node: &str, annotations: &Value) -> Result<Value, ApiError> {
    let refuse = |why: String| {
        let mut error = error::conflict(target.resource, &target.name, &why);
        error.0.message = error
            .0
            .message
            .map(|text| text.replacen("on pods ", "on pods/binding ", 1));
        error
    };
    let name = &target.name;
    if pod["metadata"]["deletionTimestamp"].is_string() {
        let why = format!("pod {name} is being deleted, cannot be assigned to a host");
        return Err(refuse(why));
    }
    if let Some(taken) = pod["spec"]["nodeName"]
        .as_str()
        .filter(|node| !node.is_empty())
    {
        return Err(refuse(format!(
            "pod {name} is already assigned to node {taken:?}"
        )));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return Err(refuse(format!(
            "pod {name} has non-empty .spec.schedulingGates"
        )));
    }
    let mut pod = pod.clone();
    pod["spec"]["nodeName"] = node.into();
    if let Some(annotations) = annotations.as_object().filter(|some| !some.is_empty()) {
        let metadata = metadata_mut(&mut pod);
        let own = metadata.entry("annotations").or_insert_with(|| json!({}));
        for (key, value) in annotations {
            own[key.as_str()] = value.clone();
        }
    }
    set_scheduled(&mut pod);
    Ok(pod)
}

/// Sets the condition `PodScheduled` to true.
fn set_scheduled(pod: &mut Value) {
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": super::now(),
    });
    if !pod["status"]["conditions"].is_array() {
        pod["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = pod["status"]["conditions"].as_array_mut() else {
        return;
    };
    match conditions
        .iter_mut()
        .find(|one| one["type"] == "PodScheduled")
    {
        Some(old) if old["status"] == "True" => (),
        Some(old) => *old = condition,
        None => conditions.push(condition),
    }
}
