//! List and watch as one stream that heals itself.
//!
//! ```text
//!       list fails: wait                  opening fails: wait
//!         ┌─────┐                           ┌────────┐
//!         ▼     │       list                ▼        │      watch
//!       Empty ──┴────────────────▶ Listed{revision} ─┴───────────▶ Watching{revision, stream}
//!         ▲                             │  ▲                              │    │
//!         ├──────── 410 too old ────────┘  └────── error or end: wait ────┘    │
//!         └──────────────────────────── 410 too old ───────────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tracing::{debug, warn};

use crate::api::{Api, ApiError, RawEvent, RawWatch, Selection, WatchKind};
use crate::backoff::Backoff;
use crate::client::{Object, decode};

/// First delay after a failure (kube-rs' and client-go's order of magnitude, for a server in
/// process).
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest delay between two attempts.
const BACKOFF_MOST: Duration = Duration::from_secs(10);

/// What a watcher tells.
#[derive(Clone, Debug)]
pub enum WatcherEvent<T> {
    /// Everything that exists now: what is not in it is gone. At the start, and when changes were
    /// missed.
    Restarted(Vec<Arc<T>>),
    /// The object was created or changed.
    Applied(Arc<T>),
    /// The object is gone; its last state.
    Deleted(Arc<T>),
}

/// Lists, then watches, then repairs itself; it never ends.
pub struct Watcher<T> {
    api: Arc<dyn Api>,
    selection: Selection,
    state: State,
    backoff: Backoff,
    object: std::marker::PhantomData<fn() -> T>,
}

enum State {
    /// Nothing is known.
    Empty,
    /// Everything up to `revision` has been told; no stream is open.
    Listed { revision: u64 },
    /// A stream is open.
    Watching { revision: u64, stream: RawWatch },
}

/// What one step came to.
enum Step<T> {
    Event(WatcherEvent<T>),
    Continue,
    Failed(ApiError),
}

impl<T: Object> Watcher<T> {
    /// A watcher of a selection.
    pub fn new(api: Arc<dyn Api>, selection: Selection) -> Self {
        let backoff = Backoff::new(BACKOFF_FIRST, BACKOFF_MOST);
        Self {
            api,
            selection,
            state: State::Empty,
            backoff,
            object: std::marker::PhantomData,
        }
    }

    /// The next event. Not cancel-safe between list and watch only in so far as a dropped list is
    /// listed again: no change is ever lost.
    pub async fn next(&mut self) -> WatcherEvent<T> {
        loop {
            let state = std::mem::replace(&mut self.state, State::Empty);
            let step = match state {
                State::Empty => self.list().await,
                State::Listed { revision } => self.open(revision),
                State::Watching { revision, stream } => self.watch(revision, stream).await,
            };
            match step {
                Step::Event(event) => {
                    self.backoff.reset();
                    return event;
                }
                Step::Continue => (),
                Step::Failed(error) => {
                    let delay = self.backoff.fail();
                    debug!(kind = T::KIND, %error, ?delay, "watch interrupted");
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }

    async fn list(&mut self) -> Step<T> {
        match self.api.list(&self.selection).await {
            Ok(list) => {
                self.state = State::Listed {
                    revision: list.resource_version,
                };
                let objects = list.items.iter().filter_map(decode_or_skip).collect();
                Step::Event(WatcherEvent::Restarted(objects))
            }
            Err(error) => Step::Failed(error),
        }
    }

    fn open(&mut self, revision: u64) -> Step<T> {
        match self.api.watch(&self.selection, revision) {
            Ok(stream) => {
                self.state = State::Watching { revision, stream };
                Step::Continue
            }
            Err(error) => self.interrupted(revision, error),
        }
    }

    async fn watch(&mut self, revision: u64, mut stream: RawWatch) -> Step<T> {
        // A cancelled call leaves `Listed` behind: the next one opens a stream at the same
        // revision.
        self.state = State::Listed { revision };
        match stream.next().await {
            Some(Ok(event)) => {
                // Bookmarks, too, show that the watch works.
                self.backoff.reset();
                let revision = event.resource_version.max(revision);
                self.state = State::Watching { revision, stream };
                translate(&event).map_or(Step::Continue, Step::Event)
            }
            Some(Err(error)) => self.interrupted(revision, error),
            None => {
                let delay = self.backoff.fail();
                tokio::time::sleep(delay).await;
                Step::Continue
            }
        }
    }

    fn interrupted(&mut self, revision: u64, error: ApiError) -> Step<T> {
        if error.is_expired() {
            // Too old: what was missed can only be found by listing, and waiting would not help.
            self.state = State::Empty;
            return Step::Continue;
        }
        self.state = State::Listed { revision };
        Step::Failed(error)
    }
}

fn translate<T: Object>(event: &RawEvent) -> Option<WatcherEvent<T>> {
    match event.kind {
        WatchKind::Added | WatchKind::Modified => {
            decode_or_skip(&event.object).map(WatcherEvent::Applied)
        }
        WatchKind::Deleted => decode_or_skip(&event.object).map(WatcherEvent::Deleted),
        WatchKind::Bookmark => None,
    }
}

/// One object that cannot be read must not end the stream for all others.
fn decode_or_skip<T: Object>(bytes: &bytes::Bytes) -> Option<Arc<T>> {
    match decode(bytes) {
        Ok(object) => Some(Arc::new(object)),
        Err(error) => {
            warn!(%error, "object skipped");
            None
        }
    }
}
