//! The workers of a controller.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use swiftlet_client::work_queue::WorkQueue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::error::ControllerError;

/// When a key wants to be looked at again although nothing changes.
pub(crate) type Again = Option<Duration>;

/// Brings one object nearer to what it shall be.
pub(crate) trait Reconcile: Send + Sync + 'static {
    /// What its queue holds.
    type Key: Clone + Eq + std::hash::Hash + Ord + Send + Sync + std::fmt::Debug + 'static;

    /// The controller's name, for people.
    const NAME: &'static str;

    /// Its queue.
    fn queue(&self) -> &WorkQueue<Self::Key>;

    /// One pass. May be repeated at any time.
    fn reconcile<'a>(&'a self, key: &'a Self::Key)
    -> BoxFuture<'a, Result<Again, ControllerError>>;
}

/// Runs a controller: `events` turns changes into keys until `shutdown`; the workers begin when
/// `synced` is done, and end after the pass that they are in.
pub(crate) async fn run<C: Reconcile>(
    controller: Arc<C>,
    workers: usize,
    synced: impl Future<Output = ()>,
    events: impl Future<Output = ()>,
    shutdown: CancellationToken,
) {
    let mut started = JoinSet::new();
    let work = async {
        synced.await;
        for _ in 0..workers {
            started.spawn(work(Arc::clone(&controller)));
        }
        // Ends with the branch below.
        std::future::pending::<()>().await;
    };
    shutdown
        .run_until_cancelled(async { tokio::join!(work, events) })
        .await;
    controller.queue().close();
    while started.join_next().await.is_some() {}
}

async fn work<C: Reconcile>(controller: Arc<C>) {
    let queue = controller.queue();
    while let Some(key) = queue.next().await {
        match controller.reconcile(&key).await {
            Ok(again) => {
                queue.forget(&key);
                if let Some(delay) = again {
                    queue.add_after(key.clone(), delay);
                }
            }
            Err(error) => {
                let delay = queue.add_rate_limited(key.clone());
                if error.is_ordinary() {
                    debug!(controller = C::NAME, ?key, %error, ?delay, "tried again");
                } else {
                    warn!(controller = C::NAME, ?key, %error, ?delay, "reconcile failed");
                }
            }
        }
        queue.done(&key);
    }
}
