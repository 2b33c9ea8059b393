//! PUT: a new version of an object, of its status or of its scale.

use serde_json::Value;
use swiftlet_client::api::ApiError;

use super::{Written, finalize, modify, scale};
use crate::api::ApiServer;
use crate::decode;
use crate::error;
use crate::options::WriteOptions;
use crate::route::Target;

/// Replaces an object.
pub(crate) async fn update(
    api: &ApiServer,
    target: &Target,
    mut body: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    let resource = target.resource;
    match target.subresource {
        "" | "status" | "ephemeralcontainers" | "resize" => (),
        "scale" => return scale::update(api, target, body, options).await,
        "finalize" => return finalize::finalize(api, target, body, options).await,
        _ => return Err(error::method_not_allowed()),
    }
    decode::expect_kind(&mut body, &resource.api_version(), resource.kind)?;
    let (object, warnings) = decode::checked(resource, &body, options.field_validation)?;
    modify::modify(api, target, options, |current| {
        let mut proposal = modify::complete(target, object.clone(), current)?;
        proposal.warnings.clone_from(&warnings);
        Ok(proposal)
    })
    .await
}
