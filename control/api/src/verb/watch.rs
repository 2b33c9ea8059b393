//! GET of a collection with `watch`: changes as they happen.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use swiftlet_client::api::{ApiError, RawEvent, WatchKind};
use swiftlet_store::{Change, ChangeKind, Revision, Snapshot};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::api::ApiServer;
use crate::encode;
use crate::error;
use crate::options::Options;
use crate::route::Target;
use crate::selection::Selection;

/// A watch without `timeoutSeconds` ends after this time; Kubernetes ends it after 30 to 60
/// minutes.
const WATCH_TIMEOUT: Duration = Duration::from_mins(45);
/// Longest `timeoutSeconds`; more is taken as this, and the client watches again.
const WATCH_TIMEOUT_MOST: Duration = Duration::from_hours(24);

/// A watch in progress.
///
/// ```text
/// initial events ─▶ end-of-initial bookmark ─▶ changes, bookmarks ─▶ end
/// (if asked for)    (if asked for)              └─ too old ─▶ error, end
/// ```
pub(crate) struct Watcher {
    selection: Selection,
    changes: swiftlet_store::Watch,
    /// Ready before any change.
    ready: VecDeque<RawEvent>,
    /// Revision of the bookmark that ends the initial events.
    initial_end: Option<u64>,
    bookmarks: Option<Interval>,
    /// `None`: it ends with the server only.
    deadline: Option<Instant>,
    shutdown: CancellationToken,
    ended: bool,
}

/// What comes next in a watch.
#[derive(Debug)]
pub(crate) enum Step {
    /// Events, oldest first.
    Events(Vec<RawEvent>),
    /// All objects that existed at the start have been sent.
    InitialEnd(u64),
    /// The watch cannot go on.
    Failed(ApiError),
}

impl Watcher {
    /// Starts a watch.
    pub(crate) fn start(
        api: &ApiServer,
        target: &Target,
        options: &Options,
    ) -> Result<Self, ApiError> {
        let selection = Selection::new(target, options)?;
        let snapshot = api.snapshot();
        let current = snapshot.revision().0;
        let requested = options.resource_version.unwrap_or_default();
        if requested > current {
            return Err(error::too_large_revision(requested, current));
        }
        let wants_initial = options.initial_events.unwrap_or(requested == 0);
        let (after, ready) = if wants_initial {
            (snapshot.revision(), initial(&snapshot, target, &selection))
        } else if requested == 0 {
            (snapshot.revision(), VecDeque::new())
        } else {
            (Revision(requested), VecDeque::new())
        };
        let prefix = encode::prefix(target.resource, &target.namespace);
        let changes = api
            .store()
            .watch(&prefix, after)
            .map_err(|old| error::too_old(old.requested.0, old.oldest.0))?;
        let initial_end =
            (options.initial_events == Some(true) && options.bookmarks).then_some(after.0);
        let bookmarks = options
            .bookmarks
            .then(|| ticks(api.options().bookmark_interval));
        let timeout = options.timeout.unwrap_or(WATCH_TIMEOUT);
        Ok(Self {
            selection,
            changes,
            ready,
            initial_end,
            bookmarks,
            deadline: Some(Instant::now() + timeout.min(WATCH_TIMEOUT_MOST)),
            shutdown: api.shutdown_token(),
            ended: false,
        })
    }

    /// The same watch without an end: a client in this process needs no load to be spread.
    #[must_use]
    pub(crate) fn without_deadline(mut self) -> Self {
        self.deadline = None;
        self
    }

    /// Waits for what comes next; `None` at the end. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Option<Step> {
        if self.ended {
            return None;
        }
        if !self.ready.is_empty() {
            return Some(Step::Events(self.ready.drain(..).collect()));
        }
        if let Some(revision) = self.initial_end.take() {
            return Some(Step::InitialEnd(revision));
        }
        loop {
            // The end comes first, or a busy store would keep a watch alive; changes come before
            // bookmarks, which are about what was sent.
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return self.end(),
                () = reach(self.deadline) => return self.end(),
                changes = self.changes.next() => match changes {
                    Ok(changes) => {
                        let events: Vec<RawEvent> =
                            changes.iter().filter_map(|change| self.event(change)).collect();
                        if !events.is_empty() {
                            return Some(Step::Events(events));
                        }
                    }
                    Err(old) => {
                        self.ended = true;
                        return Some(Step::Failed(error::too_old(old.requested.0, old.oldest.0)));
                    }
                },
                () = tick(&mut self.bookmarks) => {
                    return Some(Step::Events(vec![self.bookmark()]));
                }
            }
        }
    }

    fn end(&mut self) -> Option<Step> {
        self.ended = true;
        None
    }

    fn bookmark(&self) -> RawEvent {
        RawEvent {
            kind: WatchKind::Bookmark,
            object: Bytes::new(),
            resource_version: self.changes.position().0,
        }
    }

    /// What a change means for this selection.
    fn event(&self, change: &Change) -> Option<RawEvent> {
        let is_in = change.kind != ChangeKind::Deleted && self.selection.matches(&change.value);
        let was_in = match &change.previous {
            // What is selected by nothing but existence was selected before.
            Some(_) if self.selection.is_everything() => true,
            Some(previous) => self.selection.matches(previous),
            None => false,
        };
        let (kind, object) = match (was_in, is_in) {
            (false, false) => return None,
            (false, true) => (WatchKind::Added, change.value.clone()),
            (true, true) => (WatchKind::Modified, change.value.clone()),
            (true, false) if change.kind == ChangeKind::Deleted => {
                (WatchKind::Deleted, change.value.clone())
            }
            // It left the selection: the client is shown it as it was when it last belonged there.
            (true, false) => {
                let previous = change.previous.as_deref().unwrap_or_default();
                (
                    WatchKind::Deleted,
                    with_revision(previous, change.revision.0),
                )
            }
        };
        Some(RawEvent {
            kind,
            object,
            resource_version: change.revision.0,
        })
    }
}

fn initial(snapshot: &Snapshot, target: &Target, selection: &Selection) -> VecDeque<RawEvent> {
    let prefix = encode::prefix(target.resource, &target.namespace);
    snapshot
        .range(&prefix)
        .filter(|entry| selection.matches(&entry.value))
        .map(|entry| RawEvent {
            kind: WatchKind::Added,
            object: entry.value.clone(),
            resource_version: entry.revision.0,
        })
        .collect()
}

fn with_revision(object: &[u8], revision: u64) -> Bytes {
    let mut object = encode::decode_bytes(object);
    encode::metadata_mut(&mut object).insert("resourceVersion".into(), revision.to_string().into());
    encode::encode(&object)
}

fn ticks(period: Duration) -> Interval {
    let mut interval = tokio::time::interval_at(Instant::now() + period, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Waits for a moment; for ever without one.
async fn reach(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The next bookmark's time; never without bookmarks.
async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}
