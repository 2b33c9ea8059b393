//! PATCH: a change of an object, computed on its newest state.

use bytes::Bytes;
use serde_json::Value;
use swiftlet_client::api::{ApiError, PatchKind};

use super::modify::{self, Proposal};
use super::{Written, scale};
use crate::api::ApiServer;
use crate::decode;
use crate::encode::metadata_str;
use crate::error;
use crate::options::WriteOptions;
use crate::patch::{self, PatchError};
use crate::route::Target;

/// Applies a patch.
pub(crate) async fn patch(
    api: &ApiServer,
    target: &Target,
    kind: PatchKind,
    body: &Bytes,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    let change: Value = serde_json::from_slice(body)
        .map_err(|why| error::bad_request(format!("error decoding patch: {why}")))?;
    let apply = |current: &Value| apply(target, kind, &change, current);
    match target.subresource {
        "" | "status" | "ephemeralcontainers" | "resize" => {
            modify::modify(api, target, options, |current| {
                proposal(target, apply(current)?, current, options)
            })
            .await
        }
        "scale" => scale::patch(api, target, options, apply).await,
        _ => Err(error::method_not_allowed()),
    }
}

fn proposal(
    target: &Target,
    mut patched: Value,
    current: &Value,
    options: WriteOptions,
) -> Result<Proposal, ApiError> {
    let resource = target.resource;
    decode::expect_kind(&mut patched, &resource.api_version(), resource.kind)?;
    let (object, warnings) = decode::checked(resource, &patched, options.field_validation)?;
    let mut proposal = modify::complete(target, object, current)?;
    // The patched object carries the current revision unless the patch itself names one.
    let current_revision = metadata_str(current, "resourceVersion");
    proposal.based_on = proposal
        .based_on
        .filter(|based_on| based_on != current_revision);
    proposal.warnings = warnings;
    Ok(proposal)
}

fn apply(
    target: &Target,
    kind: PatchKind,
    change: &Value,
    current: &Value,
) -> Result<Value, ApiError> {
    patch::apply(kind, current, change).map_err(|why| match why {
        PatchError::Malformed(why) => error::bad_request(why),
        PatchError::DoesNotApply(why) => error::unprocessable(target.resource, &target.name, &why),
        PatchError::TooLarge(why) => error::failure(
            http::StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            why,
        ),
    })
}
