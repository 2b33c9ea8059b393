//! GET of one object.

use bytes::Bytes;
use swiftlet_client::api::ApiError;

use super::scale;
use crate::api::ApiServer;
use crate::error;
use crate::route::Target;

/// Reads an object, a part of it (which is shown as the whole object as well) or its scale.
pub(crate) fn get(
    api: &ApiServer,
    target: &Target,
    at_least: Option<u64>,
) -> Result<Bytes, ApiError> {
    let current = api.snapshot().revision().0;
    if let Some(requested) = at_least.filter(|requested| *requested > current) {
        return Err(error::too_large_revision(requested, current));
    }
    match target.subresource {
        "" | "status" | "ephemeralcontainers" | "resize" => {
            api.find(target).map(|entry| entry.value)
        }
        "scale" => scale::get(api, target),
        _ => Err(error::method_not_allowed()),
    }
}
