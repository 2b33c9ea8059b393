//! DELETE of a collection.

use bytes::Bytes;
use swiftlet_client::api::ApiError;

use super::delete;
use super::list::{self, List};
use crate::api::ApiServer;
use crate::encode::Head;
use crate::options::Options;
use crate::route::Target;

/// Deletes everything that is selected now. What somebody else deletes meanwhile is no failure.
pub(crate) async fn delete_collection(
    api: &ApiServer,
    target: &Target,
    options: &Options,
) -> Result<List, ApiError> {
    let mut list = list::list(api, target, options)?;
    let mut deleted: Vec<Bytes> = Vec::with_capacity(list.items.len());
    for item in &list.items {
        let head: Head = serde_json::from_slice(item).unwrap_or_default();
        let one = Target {
            name: head.metadata.name,
            namespace: head.metadata.namespace,
            ..target.clone()
        };
        match delete::delete(api, &one, &options.delete, options.write.dry_run).await {
            Ok(outcome) => deleted.push(outcome.object),
            Err(error) if error.is_not_found() => (),
            Err(error) => return Err(error),
        }
    }
    list.items = deleted;
    Ok(list)
}
