//! The runtime's own events: taken as they come, never making the runtime wait.
//!
//! A runtime may hold back what happened before the connection and send it then, and what happened
//! while there was none may be lost: whoever opens a stream compares with the lists once, and what
//! is older than the opening is left to that list.
//!
//! In containerd 1.7 all streams share one channel, and one that was dropped takes one more event
//! with it. Those that waited before are served before: until this stream has brought its first
//! event, the lists are compared as often as if there were no stream.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use swiftlet_model::lifecycle::LifecycleSource;
use swiftlet_model::runtime::{
    ContainerEvent, ContainerEventKind, RuntimeError, RuntimeEvents, RuntimeVersion,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::teller::{Report, Teller, Untold};
use crate::{PlegError, RELIST_INTERVAL_FALLBACK};

/// How long a stream without a refusal is waited for. containerd answers nothing before the first
/// event (grpc-go sends the headers with it), and refuses within a millisecond.
const SETTLE: Duration = Duration::from_millis(500);

/// Longest wait for the runtime's answer to a plain call; it answers within milliseconds. A stream
/// that says nothing may be that of a runtime that hangs.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How long after the opening events may come that are older than it. What was held back comes at
/// once; after that only a clock that was set back makes an event look old.
const BACKLOG: Duration = Duration::from_secs(5);

type Events = BoxStream<'static, Result<ContainerEvent, RuntimeError>>;

/// A stream that was not refused.
pub(crate) struct Opened {
    events: Events,
    first: Option<ContainerEvent>,
    /// By the wall clock, as the runtime's own times.
    at: Timestamp,
    since: Instant,
}

/// Opens the runtime's stream.
pub(crate) async fn open(runtime: &dyn RuntimeEvents) -> Result<Opened, PlegError> {
    let (at, since) = (Timestamp::now(), Instant::now());
    let mut events = runtime.container_events();
    let first = match timeout(SETTLE, events.next()).await {
        Ok(Some(Ok(event))) => Some(event),
        Ok(Some(Err(source))) => return Err(PlegError::Stream { source }),
        Ok(None) => return Err(PlegError::StreamEnded),
        Err(_nothing_yet) => {
            answered(runtime).await?;
            None
        }
    };
    Ok(Opened {
        events,
        first,
        at,
        since,
    })
}

/// Over the same connection: whether the runtime works on what it is asked.
pub(crate) async fn answered(runtime: &dyn RuntimeEvents) -> Result<RuntimeVersion, PlegError> {
    match timeout(ANSWER_LIMIT, runtime.version()).await {
        Ok(answer) => answer.map_err(|source| PlegError::NoAnswer { source }),
        Err(_) => Err(PlegError::Silent {
            limit_s: ANSWER_LIMIT.as_secs(),
        }),
    }
}

impl Opened {
    /// Takes events until the stream ends, and answers why; `None` when the sync loop is gone.
    pub(crate) async fn follow(
        mut self,
        teller: &Teller,
        relist_now: &Arc<Notify>,
    ) -> Option<PlegError> {
        let mut is_proven = false;
        loop {
            let next = match self.first.take() {
                Some(event) => Some(Ok(event)),
                None if is_proven => self.events.next().await,
                None => first_event(&mut self.events, relist_now).await,
            };
            is_proven = true;
            let event = match next {
                Some(Ok(event)) => event,
                Some(Err(source)) => return Some(PlegError::Stream { source }),
                None => return Some(PlegError::StreamEnded),
            };
            teller.health.count(|stats| stats.runtime_events += 1);
            let backlog = event.at < self.at && self.since.elapsed() < BACKLOG;
            if !backlog && !take(event, teller, relist_now) {
                return None;
            }
        }
    }
}

/// Waits for the first event, and has the lists compared meanwhile.
async fn first_event(
    events: &mut Events,
    relist_now: &Notify,
) -> Option<Result<ContainerEvent, RuntimeError>> {
    loop {
        match timeout(RELIST_INTERVAL_FALLBACK, events.next()).await {
            Ok(next) => return next,
            Err(_nothing_yet) => relist_now.notify_one(),
        }
    }
}

/// Tells what an event says. False when the sync loop is gone.
fn take(event: ContainerEvent, teller: &Teller, relist_now: &Notify) -> bool {
    let running = teller.merge.is_running(&event.container);
    let kind = match event.kind {
        // Who made or removed it knows.
        ContainerEventKind::Created => return true,
        ContainerEventKind::Deleted if !running => return true,
        ContainerEventKind::Started => Report::started(event.container),
        ContainerEventKind::Stopped => Report::died(event.container, event.exit),
        // Its end was lost.
        ContainerEventKind::Deleted => Report::died(event.container, None),
    };
    let Some(pod) = event.pod else {
        relist_now.notify_one();
        return true;
    };
    let report = Report {
        pod,
        kind,
        at: event.at,
        source: LifecycleSource::Runtime,
    };
    match teller.try_tell(report) {
        Ok(()) => true,
        Err(Untold::Full) => {
            teller.health.count(|stats| stats.queue_full += 1);
            relist_now.notify_one();
            true
        }
        Err(Untold::Stopped) => false,
    }
}
