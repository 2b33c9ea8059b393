//! Pulls in flight: one per image at a time, a bounded number of them, each as long as someone
//! waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use swiftlet_model::clock::Clock;
use swiftlet_model::runtime::{ImageAuth, ImageUser, Runtime, RuntimeError, SandboxConfig};
use tokio::sync::{Mutex, Semaphore};

/// An image that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pulled {
    pub(crate) id: String,
    pub(crate) user: ImageUser,
    /// 0 if the runtime does not tell.
    pub(crate) size_bytes: u64,
    /// How long the pull took, without the wait for its turn.
    pub(crate) took: Duration,
}

/// What is pulled. Who has other credentials must show that they are good: such pulls are not
/// shared.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    image: String,
    credentials: Vec<ImageAuth>,
}

type Pulling = BoxFuture<'static, Result<Pulled, String>>;
pub(crate) type Pull = Shared<Pulling>;

/// All pulls of the node.
pub(crate) struct Pulls {
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    /// Pulls in flight, as long as someone waits for them: with the last who waits the call ends
    /// and gives its place back. A lock, because many workers share a pull; it is held only to
    /// look.
    in_flight: Mutex<HashMap<Wanted, WeakShared<Pulling>>>,
}

impl Pulls {
    pub(crate) fn new(runtime: Arc<dyn Runtime>, clock: Arc<dyn Clock>, places: usize) -> Self {
        Self {
            runtime,
            clock,
            places: Arc::new(Semaphore::new(places.max(1))),
            in_flight: Mutex::default(),
        }
    }

    /// The pull of this image that is in flight, or a new one. One that has ended is not joined:
    /// the image may have changed since.
    pub(crate) async fn join(
        &self,
        image: &str,
        credentials: Vec<ImageAuth>,
        sandbox: &SandboxConfig,
    ) -> Pull {
        let in_flight = |pull: &WeakShared<Pulling>| {
            let pull = pull.upgrade();
            pull.filter(|pull| pull.peek().is_none())
        };
        let wanted = Wanted {
            image: image.to_owned(),
            credentials,
        };
        let mut all = self.in_flight.lock().await;
        if let Some(pull) = all.get(&wanted).and_then(in_flight) {
            return pull;
        }
        all.retain(|_, pull| in_flight(pull).is_some());
        let pull = self.start(wanted.clone(), sandbox.clone());
        all.extend(pull.downgrade().map(|weak| (wanted, weak)));
        pull
    }

    fn start(&self, wanted: Wanted, sandbox: SandboxConfig) -> Pull {
        let (runtime, places) = (Arc::clone(&self.runtime), Arc::clone(&self.places));
        let clock = Arc::clone(&self.clock);
        async move {
            let place = places.acquire_owned().await;
            let _place = place.map_err(|error| error.to_string())?;
            let started = clock.now();
            let id = pull(runtime.as_ref(), &wanted, &sandbox).await?;
            let took = clock.now().saturating_duration_since(started);
            // The pull has worked: what is not told of the image is not worth failing for.
            let image = runtime.image(&id).await.ok().flatten().unwrap_or_default();
            Ok(Pulled {
                id,
                user: image.user,
                size_bytes: image.size_bytes,
                took,
            })
        }
        .boxed()
        .shared()
    }
}

/// Tries one credential after the other; without any, the registry may serve everyone.
async fn pull(
    runtime: &dyn Runtime,
    wanted: &Wanted,
    sandbox: &SandboxConfig,
) -> Result<String, String> {
    let tries: Vec<Option<&ImageAuth>> = match wanted.credentials.as_slice() {
        [] => vec![None],
        some => some.iter().map(Some).collect(),
    };
    let mut errors = Vec::new();
    for auth in tries {
        match runtime.pull_image(&wanted.image, auth, sandbox).await {
            Ok(id) => return Ok(id),
            Err(error) => {
                let words = words(&error);
                if !errors.contains(&words) {
                    errors.push(words);
                }
            }
        }
    }
    match errors.as_slice() {
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

/// The runtime's words as kubelet shows them: with the code, unless it says nothing
/// (`remote_image.go` of cri-client).
fn words(error: &RuntimeError) -> String {
    match error {
        RuntimeError::NotFound { message, .. } => {
            format!("rpc error: code = NotFound desc = {message}")
        }
        RuntimeError::Refused { message, .. } => message.clone(),
        other => other.to_string(),
    }
}
