//! The `scale` of deployments and replica sets: `autoscaling/v1` Scale.

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use serde_json::{Value, json};
use swiftlet_client::api::ApiError;
use swiftlet_proto::selector::LabelSelector;

use super::Written;
use super::modify::{self, Proposal};
use crate::api::ApiServer;
use crate::decode;
use crate::encode::{self, metadata_str};
use crate::error;
use crate::options::WriteOptions;
use crate::registry::FieldError;
use crate::route::Target;

/// Reads the scale.
pub(crate) fn get(api: &ApiServer, target: &Target) -> Result<Bytes, ApiError> {
    let object = encode::decode(&api.find(target)?);
    Ok(encode::encode(&of_object(&object)))
}

/// Replaces the scale.
pub(crate) async fn update(
    api: &ApiServer,
    target: &Target,
    mut scale: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    decode::expect_kind(&mut scale, "autoscaling/v1", "Scale")?;
    let written = modify::modify(api, target, options, |current| {
        apply(target, &scale, current)
    })
    .await?;
    Ok(as_scale(written))
}

/// Changes the scale by a patch of it.
pub(crate) async fn patch<F>(
    api: &ApiServer,
    target: &Target,
    options: WriteOptions,
    patched: F,
) -> Result<Written, ApiError>
where
    F: Fn(&Value) -> Result<Value, ApiError> + Send + Sync,
{
    let written = modify::modify(api, target, options, |current| {
        let before = of_object(current);
        let scale = patched(&before)?;
        let mut proposal = apply(target, &scale, current)?;
        // A patch is based on a revision only if it names one.
        let named = scale["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"];
        proposal.based_on = proposal.based_on.filter(|_| named);
        Ok(proposal)
    })
    .await?;
    Ok(as_scale(written))
}

fn as_scale(written: Written) -> Written {
    let object = encode::encode(&of_object(&encode::decode_bytes(&written.object)));
    Written { object, ..written }
}

/// The scale of an object.
fn of_object(object: &Value) -> Value {
    let mut metadata = json!({});
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(value) = object["metadata"].get(field) {
            metadata[field] = value.clone();
        }
    }
    let selector: Option<ApiSelector> =
        serde_json::from_value(object["spec"]["selector"].clone()).unwrap_or_default();
    let selector = LabelSelector::from_object(selector.as_ref())
        .map(|selector| selector.to_string())
        .unwrap_or_default();
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": { "replicas": object["spec"]["replicas"].as_i64().unwrap_or_default() },
        "status": {
            "replicas": object["status"]["replicas"].as_i64().unwrap_or_default(),
            "selector": selector,
        },
    })
}

/// The object with the replicas of a scale.
fn apply(target: &Target, scale: &Value, current: &Value) -> Result<Proposal, ApiError> {
    modify::check_uid(target, metadata_str(scale, "uid"), current)?;
    let replicas = match &scale["spec"]["replicas"] {
        Value::Null => 0,
        value => value.as_i64().ok_or_else(|| {
            error::bad_request(
                "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal \
                 into Go struct field ScaleSpec.spec.replicas of type int32",
            )
        })?,
    };
    if !(0..=i64::from(i32::MAX)).contains(&replicas) {
        let detail = "must be greater than or equal to 0";
        let wrong = FieldError::invalid("spec.replicas", replicas.into(), detail);
        let mut error = error::invalid(target.resource, &target.name, &[wrong]);
        error.0.message = Some(format!(
            "Scale.autoscaling \"{}\" is invalid: spec.replicas: Invalid value: {replicas}: {detail}",
            target.name
        ));
        return Err(error);
    }
    let mut object = current.clone();
    object["spec"]["replicas"] = replicas.into();
    target
        .resource
        .strategy
        .prepare_for_update(&mut object, current);
    let based_on = metadata_str(scale, "resourceVersion").to_string();
    let based_on = Some(based_on).filter(|text| !text.is_empty());
    Ok(Proposal {
        object,
        based_on,
        warnings: Vec::new(),
    })
}
