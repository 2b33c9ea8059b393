//! The workers of a controller.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use swiftlet_client::work_queue::WorkQueue;
use tokio::task::{JoinError, JoinSet};
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
        // Workers end when the queue is closed. A panic must not leave a controller behind that
        // looks alive and does nothing.
        while let Some(ended) = started.join_next().await {
            surface(ended);
        }
        // Ends with the branch below.
        std::future::pending::<()>().await;
    };
    shutdown
        .run_until_cancelled(async { tokio::join!(work, events) })
        .await;
    controller.queue().close();
    while let Some(ended) = started.join_next().await {
        surface(ended);
    }
}

/// Carries a worker's panic on to whoever runs the controller.
fn surface(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(WorkQueue<u8>);

    impl Reconcile for Broken {
        type Key = u8;
        const NAME: &'static str = "broken";

        fn queue(&self) -> &WorkQueue<u8> {
            &self.0
        }

        fn reconcile<'a>(&'a self, _key: &'a u8) -> BoxFuture<'a, Result<Again, ControllerError>> {
            Box::pin(async { panic!("a worker breaks down") })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_ends_its_controller() {
        let controller = Arc::new(Broken(WorkQueue::new()));
        controller.queue().add(1);
        let run = run(
            controller,
            2,
            std::future::ready(()),
            std::future::pending(),
            CancellationToken::new(),
        );
        let ended = tokio::time::timeout(Duration::from_mins(1), tokio::spawn(run)).await;
        assert!(ended.unwrap().unwrap_err().is_panic());
    }
}
