//! Images: pull policies, one pull per image at a time, a bounded number of pulls.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::clock::Clock;
use swiftlet_model::events::{ERR_IMAGE_NEVER_PULL, EventKind, FAILED, PULLED, PULLING};
use swiftlet_model::runtime::{Runtime, RuntimeError, SandboxConfig};
use tokio::sync::{Mutex, Semaphore};

use crate::events::Recorder;

/// Pulls at the same time on one node; the runtime shares layers between them.
const PULLS_MAX: usize = 4;
/// Longest image reference (a registry's name, a path of 255 and a digest).
const REFERENCE_BYTES_MAX: usize = 1024;

/// Why a container has no image.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// The reference is no reference.
    #[error("Failed to apply default image tag \"{0}\": couldn't parse image name \"{0}\"")]
    InvalidName(String),
    /// The policy is `Never` and the image is not there.
    #[error("Container image \"{0}\" is not present with pull policy of Never")]
    NeverPull(String),
    /// The pull failed.
    #[error("failed to pull image \"{image}\": {cause}")]
    Pull {
        /// The reference.
        image: String,
        /// The runtime's words.
        cause: String,
    },
    /// The runtime could not be asked.
    #[error("Failed to inspect image \"{image}\": {source}")]
    Inspect {
        /// The reference.
        image: String,
        /// Why.
        source: RuntimeError,
    },
}

impl ImageError {
    /// The waiting reason of the container.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName(_) => "InvalidImageName",
            Self::NeverPull(_) => ERR_IMAGE_NEVER_PULL,
            Self::Pull { .. } => "ErrImagePull",
            Self::Inspect { .. } => "ImageInspectError",
        }
    }

    /// Whether the wait before the next try is that of pulls.
    pub(crate) fn is_pull(&self) -> bool {
        !matches!(self, Self::Inspect { .. })
    }
}

type Pulling = BoxFuture<'static, Result<String, String>>;
type Pull = Shared<Pulling>;

/// Gets images onto the node.
pub(crate) struct Images {
    runtime: Arc<dyn Runtime>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    pulls: Arc<Semaphore>,
    /// Pulls in flight by image, as long as someone waits for them: with the last who waits the
    /// call ends and gives its place back. A lock, because many workers share a pull; it is held
    /// only to look.
    in_flight: Mutex<HashMap<String, WeakShared<Pulling>>>,
}

impl Images {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        clock: Arc<dyn Clock>,
        recorder: Recorder,
    ) -> Self {
        let pulls = Arc::new(Semaphore::new(PULLS_MAX));
        Self {
            runtime,
            clock,
            recorder,
            pulls,
            in_flight: Mutex::default(),
        }
    }

    /// Makes sure that the container's image is there, by its pull policy; answers the image's id.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &SandboxConfig,
    ) -> Result<String, ImageError> {
        let image = container.image.as_deref().unwrap_or_default();
        if !is_reference(image) {
            return Err(ImageError::InvalidName(image.to_owned()));
        }
        let policy = container
            .image_pull_policy
            .as_deref()
            .unwrap_or("IfNotPresent");
        if policy != "Always" {
            let present = self.runtime.image(image).await;
            let present = present.map_err(|source| ImageError::Inspect {
                image: image.to_owned(),
                source,
            })?;
            if let Some(found) = present {
                let message = format!("Container image \"{image}\" already present on machine");
                self.tell(pod, container, EventKind::Normal, PULLED, message);
                return Ok(found.id);
            }
        }
        if policy == "Never" {
            let error = ImageError::NeverPull(image.to_owned());
            let text = error.to_string();
            self.tell(
                pod,
                container,
                EventKind::Warning,
                ERR_IMAGE_NEVER_PULL,
                text,
            );
            return Err(error);
        }
        self.pull(pod, container, image, sandbox).await
    }

    async fn pull(
        &self,
        pod: &Pod,
        container: &Container,
        image: &str,
        sandbox: &SandboxConfig,
    ) -> Result<String, ImageError> {
        let message = format!("Pulling image \"{image}\"");
        self.tell(pod, container, EventKind::Normal, PULLING, message);
        let started = self.clock.now();
        let result = self.join_pull(image, sandbox).await.await;
        let took = self.clock.now().saturating_duration_since(started);
        match result {
            Ok(id) => {
                let took = rounded(took);
                let message = format!(
                    "Successfully pulled image \"{image}\" in {took} ({took} including waiting)"
                );
                self.tell(pod, container, EventKind::Normal, PULLED, message);
                Ok(id)
            }
            Err(cause) => {
                let message = format!("Failed to pull image \"{image}\": {cause}");
                self.tell(pod, container, EventKind::Warning, FAILED, message);
                Err(ImageError::Pull {
                    image: image.to_owned(),
                    cause,
                })
            }
        }
    }

    /// The pull of this image that is in flight, or a new one. One that has ended is not joined:
    /// the image may have changed since.
    async fn join_pull(&self, image: &str, sandbox: &SandboxConfig) -> Pull {
        let in_flight = |pull: &WeakShared<Pulling>| {
            let pull = pull.upgrade();
            pull.filter(|pull| pull.peek().is_none())
        };
        let mut all = self.in_flight.lock().await;
        if let Some(pull) = all.get(image).and_then(in_flight) {
            return pull;
        }
        all.retain(|_, pull| in_flight(pull).is_some());
        let pull = self.start_pull(image, sandbox);
        all.extend(pull.downgrade().map(|weak| (image.to_owned(), weak)));
        pull
    }

    fn start_pull(&self, image: &str, sandbox: &SandboxConfig) -> Pull {
        let (runtime, pulls) = (Arc::clone(&self.runtime), Arc::clone(&self.pulls));
        let (image, sandbox) = (image.to_owned(), sandbox.clone());
        async move {
            let _permit = pulls
                .acquire_owned()
                .await
                .map_err(|error| error.to_string())?;
            let pulled = runtime.pull_image(&image, None, &sandbox).await;
            pulled.map_err(|error| error.to_string())
        }
        .boxed()
        .shared()
    }

    fn tell(&self, pod: &Pod, one: &Container, kind: EventKind, reason: &str, text: String) {
        self.recorder.pod(pod, Some(&one.name), kind, reason, text);
    }
}

/// Whether the text can be an image reference at all; the registry decides the rest.
fn is_reference(image: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:@[]".contains(&byte);
    let (name, digest) = image.split_once('@').unwrap_or((image, "sha256:0"));
    let path = name.rsplit_once('/').map_or(name, |(_, path)| path);
    let path = path.split(':').next().unwrap_or_default();
    !path.is_empty()
        && image.len() <= REFERENCE_BYTES_MAX
        && image.bytes().all(allowed)
        && digest.contains(':')
        && !path.bytes().any(|byte| byte.is_ascii_uppercase())
        && !name.split('/').any(str::is_empty)
}

fn rounded(took: Duration) -> String {
    format!("{:.3}s", took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::is_reference;

    #[test]
    fn references_are_told_from_other_text() {
        for good in [
            "busybox",
            "registry.local/busybox:1.35",
            "[::1]:5000/a",
            "a@sha256:00",
        ] {
            assert!(is_reference(good), "{good}");
        }
        for bad in ["", "Busybox", "a b", "/a", "a//b", ":x", "a@b"] {
            assert!(!is_reference(bad), "{bad}");
        }
    }
}
