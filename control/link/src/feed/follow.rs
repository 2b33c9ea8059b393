//! One resource, followed for ever.
//!
//! ```text
//! list ──▶ watch after its revision ──▶ changes ─┬─ end: watch again from the last revision
//!  ▲                                             └─ error (too old): list again
//!  └───────────────────────────────────────────────────┘
//! ```
//! A resource that is not served is told as absent, and asked for again later.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use swiftlet_client::api::{Api, RawWatch, ResourceName, Selection};

use super::Event;

/// Pause before a list or a watch is repeated: one that ends at once must not become a busy loop.
const REPEAT_PAUSE: Duration = Duration::from_millis(200);

/// Pause before a resource that is not served is asked for again: the API's own kinds come with
/// the program, and do not appear later.
const ABSENT_PAUSE: Duration = Duration::from_mins(1);

/// How far a follower has come.
enum Position {
    /// Nothing is known, or changes were missed.
    Start,
    /// The resource is not served.
    Absent,
    /// Everything up to this revision has been told.
    After(u64),
    /// The same, and a watch is open.
    Open(u64, RawWatch),
}

struct Follower {
    api: Arc<dyn Api>,
    selection: Selection,
    position: Position,
}

/// A list, then its changes, and a list again after an error.
pub(super) fn follow(api: Arc<dyn Api>, resource: ResourceName) -> BoxStream<'static, Event> {
    let follower = Follower {
        api,
        selection: Selection::all(resource),
        position: Position::Start,
    };
    stream::unfold(follower, |mut follower| async {
        Some((follower.next().await, follower))
    })
    .boxed()
}

impl Follower {
    async fn next(&mut self) -> Event {
        let resource = self.selection.resource;
        loop {
            let position = std::mem::replace(&mut self.position, Position::Start);
            if matches!(position, Position::Absent) {
                tokio::time::sleep(ABSENT_PAUSE).await;
            }
            let failed = match position {
                Position::Start | Position::Absent => match self.api.list(&self.selection).await {
                    Ok(list) => {
                        self.position = Position::After(list.resource_version);
                        return Event::Listed(resource, list.items);
                    }
                    Err(error) if error.is_not_found() => {
                        self.position = Position::Absent;
                        return Event::Absent(resource);
                    }
                    Err(error) => Some(error),
                },
                Position::After(revision) => match self.api.watch(&self.selection, revision) {
                    Ok(watch) => {
                        self.position = Position::Open(revision, watch);
                        continue;
                    }
                    Err(error) => Some(error),
                },
                Position::Open(revision, mut watch) => match watch.next().await {
                    Some(Ok(event)) => {
                        let revision = revision.max(event.resource_version);
                        self.position = Position::Open(revision, watch);
                        return Event::Changed(resource, event);
                    }
                    Some(Err(error)) => Some(error),
                    None => {
                        self.position = Position::After(revision);
                        None
                    }
                },
            };
            if let Some(error) = failed {
                tracing::warn!(resource = resource.plural, %error, "interrupted, listed again");
            }
            tokio::time::sleep(REPEAT_PAUSE).await;
        }
    }
}
