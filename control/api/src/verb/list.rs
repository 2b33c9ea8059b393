//! GET of a collection.

use bytes::Bytes;
use swiftlet_client::api::ApiError;
use swiftlet_store::{Entry, Snapshot};

use crate::api::ApiServer;
use crate::encode;
use crate::error;
use crate::options::{Options, RevisionMatch};
use crate::pages::Token;
use crate::route::Target;
use crate::selection::Selection;

/// A list, or a page of one. The objects are the store's own bytes.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) items: Vec<Bytes>,
    pub(crate) revision: u64,
    /// The token for the next page; empty at the end.
    pub(crate) continue_token: String,
    /// Objects on later pages, where that is known.
    pub(crate) remaining: Option<usize>,
}

/// Lists what is selected, at one revision.
pub(crate) fn list(api: &ApiServer, target: &Target, options: &Options) -> Result<List, ApiError> {
    let selection = Selection::new(target, options)?;
    api.pages().expire();
    let (snapshot, after) = source(api, options)?;
    let prefix = encode::prefix(target.resource, &target.namespace);
    if let Some(after) = &after
        && !after.starts_with(&prefix)
    {
        return Err(error::bad_request(
            "continue key is not valid: it is of another collection",
        ));
    }
    let mut entries = snapshot.range_from(&prefix, after.as_deref());
    let limit = options.limit.unwrap_or(usize::MAX);
    let mut page: Vec<&Entry> = Vec::new();
    let mut more = false;
    for entry in entries
        .by_ref()
        .filter(|entry| selection.matches(&entry.value))
    {
        if page.len() == limit {
            more = true;
            break;
        }
        page.push(entry);
    }
    let remaining = (more && selection.is_everything()).then(|| 1 + entries.count());
    let revision = snapshot.revision().0;
    let continue_token = match page.last() {
        Some(last) if more => {
            api.pages().keep(&snapshot);
            Token::new(revision, last.key.as_str()).encoded()
        }
        _ => String::new(),
    };
    let items = page.into_iter().map(|entry| entry.value.clone()).collect();
    Ok(List {
        items,
        revision,
        continue_token,
        remaining,
    })
}

/// The snapshot to list, and the key to start after.
fn source(api: &ApiServer, options: &Options) -> Result<(Snapshot, Option<String>), ApiError> {
    if !options.continue_token.is_empty() {
        let token = Token::decoded(&options.continue_token)?;
        return Ok((api.pages().find(token.revision)?, Some(token.after)));
    }
    let snapshot = api.snapshot();
    let current = snapshot.revision().0;
    let requested = options.resource_version.unwrap_or_default();
    if requested > current {
        return Err(error::too_large_revision(requested, current));
    }
    let exact = options.resource_version_match == Some(RevisionMatch::Exact);
    if exact && requested != current {
        return api.pages().find(requested).map(|snapshot| (snapshot, None));
    }
    Ok((snapshot, None))
}
