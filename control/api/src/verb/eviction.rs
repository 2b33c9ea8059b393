//! POST of a pod's `eviction`: a deletion that says why (Kubernetes:
//! `pkg/registry/core/pod/storage/eviction.go`). There are no disruption budgets here that could
//! speak against it.

use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, DeleteParameters};

use super::modify::{self, Proposal};
use super::{Written, delete};
use crate::api::ApiServer;
use crate::decode;
use crate::encode::{self, metadata_mut, metadata_str};
use crate::error;
use crate::options::{self, WriteOptions};
use crate::route::Target;

/// Times that an eviction is decided again after somebody else wrote first.
const ATTEMPTS_MAX: usize = 8;

/// Begins to delete a pod.
pub(crate) async fn evict(
    api: &ApiServer,
    target: &Target,
    mut eviction: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    decode::expect_kind(&mut eviction, "policy/v1", "Eviction")?;
    modify::check_namespace(target, metadata_mut(&mut eviction))?;
    let name = metadata_str(&eviction, "name");
    if !name.is_empty() && name != target.name {
        return Err(error::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let (parameters, is_dry) = parameters(&eviction["deleteOptions"])?;
    let dry_run = options.dry_run || is_dry;
    let pod = Target {
        subresource: "",
        ..target.clone()
    };
    for attempt in 1.. {
        let current = encode::decode(&api.find(&pod)?);
        check(&pod, &parameters, &current)?;
        let mut exactly = parameters.clone();
        if !dry_run && is_disruption(&current) {
            let marked = mark(api, &pod, &parameters).await?;
            // The mark made a new revision; it is the one that goes.
            exactly.uid = Some(metadata_str(&marked, "uid").into());
            exactly.resource_version = Some(metadata_str(&marked, "resourceVersion").into());
        }
        match delete::delete(api, &pod, &exactly, dry_run).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS_MAX => (),
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    Ok(Written {
        object: EVICTED.into(),
        warnings: Vec::new(),
    })
}

/// The answer to an eviction.
const EVICTED: &[u8] =
    br#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;

fn parameters(options: &Value) -> Result<(DeleteParameters, bool), ApiError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let policy = text(&options["propagationPolicy"]).map(options::policy);
    let parameters = DeleteParameters {
        grace_period_seconds: options["gracePeriodSeconds"].as_i64(),
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        propagation_policy: policy.transpose()?,
    };
    let dry_run = options["dryRun"].as_array();
    let is_dry = dry_run.is_some_and(|list| list.iter().any(|one| one == "All"));
    Ok((parameters, is_dry))
}

fn check(target: &Target, parameters: &DeleteParameters, pod: &Value) -> Result<(), ApiError> {
    let uid = parameters.uid.as_deref().unwrap_or_default();
    modify::check_uid(target, uid, pod)?;
    match parameters.resource_version.as_deref() {
        Some(wanted) if wanted != metadata_str(pod, "resourceVersion") => {
            Err(error::modified(target.resource, &target.name))
        }
        _ => Ok(()),
    }
}

/// Whether the pod does something that the eviction disrupts.
fn is_disruption(pod: &Value) -> bool {
    let idle = matches!(
        pod["status"]["phase"].as_str(),
        Some("Pending" | "Succeeded" | "Failed")
    );
    !idle && !pod["metadata"]["deletionTimestamp"].is_string()
}

/// Sets the condition that says why the pod ends; answers the pod.
async fn mark(
    api: &ApiServer,
    target: &Target,
    parameters: &DeleteParameters,
) -> Result<Value, ApiError> {
    let written = modify::modify(api, target, WriteOptions::default(), |current| {
        check(target, parameters, current)?;
        let mut object = current.clone();
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "observedGeneration": current["metadata"]["generation"],
            "lastProbeTime": null,
            "lastTransitionTime": super::now(),
        });
        let conditions = &mut object["status"]["conditions"];
        if !conditions.is_array() {
            *conditions = json!([]);
        }
        if let Some(conditions) = conditions.as_array_mut() {
            conditions.retain(|one| one["type"] != "DisruptionTarget");
            conditions.push(condition);
        }
        Ok(Proposal {
            object,
            based_on: None,
            warnings: Vec::new(),
        })
    })
    .await?;
    Ok(encode::decode_bytes(&written.object))
}
