//! What every source does with what it learns: once per container, into the sync loop's queue.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind, LifecycleSource, PodLifecycleEvent};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::health::HealthWriter;
use crate::merge::{Merge, News};

/// Tells the sync loop; each source holds a clone.
#[derive(Clone)]
pub(crate) struct Teller {
    pub(crate) merge: Arc<Merge>,
    pub(crate) events: mpsc::Sender<PodLifecycleEvent>,
    pub(crate) health: HealthWriter,
}

/// What a source learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) pod: PodUid,
    pub(crate) kind: LifecycleKind,
    pub(crate) at: Timestamp,
    pub(crate) source: LifecycleSource,
}

/// The sync loop is gone, or the source shall end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Why a report was not told.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    /// The sync loop's queue is full; the report is as unknown as before.
    Full,
    /// The sync loop is gone.
    Stopped,
}

impl Report {
    pub(crate) fn started(container: ContainerId) -> LifecycleKind {
        LifecycleKind::ContainerStarted { container }
    }

    pub(crate) fn died(container: ContainerId, exit: Option<KernelExit>) -> LifecycleKind {
        LifecycleKind::ContainerDied { container, exit }
    }
}

impl Teller {
    /// Tells from a thread of its own, and waits there while the queue is full.
    pub(crate) fn tell_blocking(&self, report: Report) -> Result<(), Stopped> {
        match self.news(report) {
            Some(event) => self.events.blocking_send(event).map_err(|_| Stopped),
            None => Ok(()),
        }
    }

    /// Tells, and waits while the queue is full.
    pub(crate) async fn tell(&self, report: Report) -> Result<(), Stopped> {
        // The place first: what is dropped while it waits has then been told to nobody.
        let place = self.events.reserve().await.map_err(|_| Stopped)?;
        if let Some(event) = self.news(report) {
            place.send(event);
        }
        Ok(())
    }

    /// Tells unless the queue is full; for sources that must not be made to wait.
    pub(crate) fn try_tell(&self, report: Report) -> Result<(), Untold> {
        // The place first: a relist must find what was not told still to be news.
        match self.events.try_reserve() {
            Ok(place) => {
                if let Some(event) = self.news(report) {
                    place.send(event);
                }
                Ok(())
            }
            Err(TrySendError::Full(())) => Err(Untold::Full),
            Err(TrySendError::Closed(())) => Err(Untold::Stopped),
        }
    }

    /// The event, unless some source told it before.
    fn news(&self, report: Report) -> Option<PodLifecycleEvent> {
        let now = Instant::now();
        let news = match &report.kind {
            LifecycleKind::ContainerStarted { container } => self.merge.started(container, now),
            LifecycleKind::ContainerDied { container, exit } => {
                let settled = exit.is_some() || is_runtimes_word(report.source);
                self.merge.died(container, settled, now)
            }
            LifecycleKind::Changed => News::Event,
        };
        let kind = match news {
            News::Event => report.kind,
            News::Hint => LifecycleKind::Changed,
            News::Old => return None,
        };
        self.health.count(|stats| match kind {
            LifecycleKind::ContainerStarted { .. } => stats.started += 1,
            LifecycleKind::ContainerDied { .. } => stats.died += 1,
            LifecycleKind::Changed => (),
        });
        Some(PodLifecycleEvent {
            pod: report.pod,
            kind,
            at: report.at,
            source: report.source,
        })
    }
}

/// Whether the runtime itself says so, whose record then agrees.
fn is_runtimes_word(source: LifecycleSource) -> bool {
    matches!(source, LifecycleSource::Runtime | LifecycleSource::Relist)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died(source: LifecycleSource) -> Report {
        Report {
            pod: "p".into(),
            kind: Report::died("c".into(), None),
            at: Timestamp::UNIX_EPOCH,
            source,
        }
    }

    #[test]
    fn the_end_in_the_list_is_a_hint_where_nobody_had_proved_the_death() {
        let (events, mut receiver) = mpsc::channel(4);
        let teller = Teller {
            merge: Arc::default(),
            events,
            health: HealthWriter::new(),
        };
        let tell = |source| teller.try_tell(died(source)).expect("there is a place");
        tell(LifecycleSource::Pidfd);
        tell(LifecycleSource::Relist);
        tell(LifecycleSource::Relist);
        let mut told = std::iter::from_fn(|| receiver.try_recv().ok());
        assert_eq!(
            told.next().map(|one| one.source),
            Some(LifecycleSource::Pidfd)
        );
        assert_eq!(
            told.next().map(|one| one.kind),
            Some(LifecycleKind::Changed)
        );
        assert!(told.next().is_none(), "once");
        assert_eq!(teller.health.read().stats.died, 1);
    }

    #[test]
    fn what_found_the_queue_full_is_still_news_to_the_next_source() {
        let (events, mut receiver) = mpsc::channel(1);
        let teller = Teller {
            merge: Arc::default(),
            events,
            health: HealthWriter::new(),
        };
        let changed = Report {
            kind: LifecycleKind::Changed,
            ..died(LifecycleSource::Runtime)
        };
        assert_eq!(teller.try_tell(changed), Ok(()));
        assert_eq!(
            teller.try_tell(died(LifecycleSource::Runtime)),
            Err(Untold::Full)
        );
        receiver.try_recv().expect("the hint");
        assert_eq!(teller.try_tell(died(LifecycleSource::Relist)), Ok(()));
        let told = receiver.try_recv().expect("the death");
        assert_eq!(told.source, LifecycleSource::Relist);
        assert_eq!(teller.try_tell(died(LifecycleSource::Runtime)), Ok(()));
        assert!(receiver.try_recv().is_err(), "once");
        drop(receiver);
        assert_eq!(
            teller.try_tell(died(LifecycleSource::Runtime)),
            Err(Untold::Stopped)
        );
    }
}
