//! PUT of a namespace's `finalize`: its content is gone.

use serde_json::{Value, json};
use swiftlet_client::api::ApiError;

use super::Written;
use super::modify::{self, Proposal};
use crate::api::ApiServer;
use crate::encode::metadata_str;
use crate::options::WriteOptions;
use crate::route::Target;

/// Sets `spec.finalizers`, and nothing else. A namespace that is being deleted goes with the last.
pub(crate) async fn finalize(
    api: &ApiServer,
    target: &Target,
    body: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    let based_on = metadata_str(&body, "resourceVersion").to_string();
    let based_on = Some(based_on).filter(|text| !text.is_empty());
    let finalizers = body["spec"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    modify::modify(api, target, options, |current| {
        modify::check_uid(target, metadata_str(&body, "uid"), current)?;
        let mut object = current.clone();
        if finalizers.is_empty() {
            object["spec"] = json!({});
        } else {
            object["spec"]["finalizers"] = finalizers.clone().into();
        }
        Ok(Proposal {
            object,
            based_on: based_on.clone(),
            warnings: Vec::new(),
        })
    })
    .await
}
