//! A reflector that also tells what changed.
//!
//! One task per informer: it takes an event from the watcher, publishes the new snapshot, then puts
//! the change (with old and new) into each subscriber's bounded queue. So a subscriber that handles
//! a change finds it in the store. A slow subscriber slows the informer, which then falls behind
//! the watch and lists again; nothing is lost and nothing grows.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Selection};
use crate::client::Object;
use crate::reflector::{Change, Index, Store, Writer, reflector};
use crate::watcher::{Watcher, WatcherEvent};

/// Most changes that wait for one subscriber.
pub const CHANGE_QUEUE_MAX: usize = 1024;

/// Where a subscriber's changes arrive.
pub type ChangeReceiver<T> = mpsc::Receiver<Change<T>>;

/// An informer that has not started: subscribe first, so that no change is missed.
pub struct Informer<T> {
    watcher: Watcher<T>,
    writer: Writer<T>,
    store: Store<T>,
    subscribers: Vec<mpsc::Sender<Change<T>>>,
}

impl<T: Object> Informer<T> {
    /// An informer of all objects of a type.
    pub fn new(api: Arc<dyn Api>, indexes: Vec<Index<T>>) -> Self {
        Self::of(api, Selection::all(T::RESOURCE), indexes)
    }

    /// An informer of a selection.
    pub fn of(api: Arc<dyn Api>, selection: Selection, indexes: Vec<Index<T>>) -> Self {
        let (writer, store) = reflector(indexes);
        let watcher = Watcher::new(api, selection);
        Self {
            watcher,
            writer,
            store,
            subscribers: Vec::new(),
        }
    }

    /// The readers' side.
    pub fn store(&self) -> Store<T> {
        self.store.clone()
    }

    /// A queue of all changes from the first list on.
    pub fn subscribe(&mut self) -> ChangeReceiver<T> {
        let (sender, receiver) = mpsc::channel(CHANGE_QUEUE_MAX);
        self.subscribers.push(sender);
        receiver
    }

    /// Runs until `shutdown`.
    pub fn spawn(self, shutdown: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(async move {
            shutdown.run_until_cancelled(self.run()).await;
        })
    }

    async fn run(mut self) {
        loop {
            match self.watcher.next().await {
                WatcherEvent::Restarted(objects) => {
                    for change in self.writer.restart(objects) {
                        self.tell(change).await;
                    }
                }
                WatcherEvent::Applied(object) => {
                    for change in self.writer.apply(object) {
                        self.tell(change).await;
                    }
                }
                WatcherEvent::Deleted(object) => {
                    if let Some(change) = self.writer.delete(&object) {
                        self.tell(change).await;
                    }
                }
            }
        }
    }

    async fn tell(&mut self, change: Change<T>) {
        let mut closed = false;
        for subscriber in &self.subscribers {
            closed |= subscriber.send(change.clone()).await.is_err();
        }
        if closed {
            self.subscribers
                .retain(|subscriber| !subscriber.is_closed());
        }
    }
}
