//! Images: pull policies, credentials, pulls, and the removal of what nobody uses.
//!
//! ```text
//! images.rs        the policy: pure but for the calls      reference.rs    names: pure
//! credentials.rs   which Secret fits which registry: pure  pull.rs         pulls in flight
//! gc.rs            which images go: pure                   collector.rs    has them removed
//! errors.rs        why a container has none
//! ```

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::{ControlPlane, ObjectRef, RefKind};
use swiftlet_model::credentials::NodeCredentials;
use swiftlet_model::events::{
    ERR_IMAGE_NEVER_PULL, EventKind, FAILED, FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET, INSPECT_FAILED,
    PULLED, PULLING,
};
use swiftlet_model::runtime::{ImageAuth, ImageUser, Runtime, SandboxConfig};

use crate::events::Recorder;
use crate::images::collector::Collector;
use crate::images::credentials::Keyring;
use crate::images::pull::{Pulled, Pulls};
use crate::images::reference::{Reference, with_default_tag};
use crate::options::Doors;

pub(crate) mod collector;
mod credentials;
mod errors;
pub(crate) mod gc;
mod pull;
pub(crate) mod reference;
#[cfg(test)]
mod tests;

pub(crate) use crate::images::errors::{ImageError, is_failed_pull, is_of_image};

/// An image that is there for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// As the container names it.
    pub(crate) image: String,
    /// The runtime's id.
    pub(crate) id: String,
    /// Who its processes are if the pod does not say.
    pub(crate) user: ImageUser,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// `imagePullPolicy`, with the API's default for objects that have not passed its server.
    fn of(container: &Container, reference: &Reference) -> Self {
        match container.image_pull_policy.as_deref() {
            Some("Always") => Self::Always,
            Some("Never") => Self::Never,
            Some("IfNotPresent") => Self::IfNotPresent,
            _ if reference.is_latest() => Self::Always,
            _ => Self::IfNotPresent,
        }
    }
}

/// Gets images onto the node.
pub(crate) struct Images {
    runtime: Arc<dyn Runtime>,
    control_plane: Arc<dyn ControlPlane>,
    node_credentials: Arc<dyn NodeCredentials>,
    clock: Arc<dyn Clock>,
    recorder: Recorder,
    pulls: Pulls,
    /// Removes what nobody uses.
    pub(crate) collector: Collector,
}

/// A container and the image that it wants.
struct Wanted<'a> {
    pod: &'a Pod,
    container: &'a Container,
    /// As the container names it.
    image: &'a str,
    reference: Reference,
    /// The same with a tag, for the runtime.
    tagged: String,
}

impl Images {
    pub(crate) fn new(doors: &Doors, recorder: Recorder, pulls_max: usize) -> Self {
        let (runtime, clock) = (Arc::clone(&doors.runtime), Arc::clone(&doors.clock));
        Self {
            pulls: Pulls::new(Arc::clone(&runtime), Arc::clone(&clock), pulls_max),
            runtime,
            control_plane: Arc::clone(&doors.control_plane),
            node_credentials: Arc::clone(&doors.credentials),
            clock,
            recorder,
            collector: Collector::default(),
        }
    }

    /// Makes sure that the container's image is there, by its pull policy.
    pub(crate) async fn ensure(
        &self,
        pod: &Pod,
        container: &Container,
        sandbox: &SandboxConfig,
    ) -> Result<Present, ImageError> {
        let image = container.image.as_deref().unwrap_or_default();
        let reference = Reference::parse(image).map_err(|source| {
            let image = image.to_owned();
            let error = ImageError::InvalidName { image, source };
            self.warn(pod, container, INSPECT_FAILED, &error);
            error
        })?;
        let tagged = with_default_tag(image, &reference);
        let policy = PullPolicy::of(container, &reference);
        let wanted = Wanted {
            pod,
            container,
            image,
            reference,
            tagged,
        };
        let found = if policy == PullPolicy::Always {
            None
        } else {
            self.find(&wanted).await?
        };
        let present = match (found, policy) {
            (Some(found), _) => found,
            (None, PullPolicy::Never) => {
                let error = ImageError::NeverPull(image.to_owned());
                self.warn(pod, container, ERR_IMAGE_NEVER_PULL, &error);
                return Err(error);
            }
            (None, _) => self.pull(&wanted, sandbox).await?,
        };
        self.collector.wanted(&present.id, self.clock.now());
        Ok(present)
    }

    /// The image, if the runtime has it.
    async fn find(&self, wanted: &Wanted<'_>) -> Result<Option<Present>, ImageError> {
        let found = self.runtime.image(&wanted.tagged).await.map_err(|source| {
            let image = wanted.image.to_owned();
            let error = ImageError::Inspect { image, source };
            self.warn(wanted.pod, wanted.container, INSPECT_FAILED, &error);
            error
        })?;
        Ok(found.map(|found| {
            let text = format!(
                "Container image \"{}\" already present on machine",
                wanted.image
            );
            self.tell(wanted, EventKind::Normal, PULLED, text);
            Present {
                image: wanted.image.to_owned(),
                id: found.id,
                user: found.user,
            }
        }))
    }

    async fn pull(
        &self,
        wanted: &Wanted<'_>,
        sandbox: &SandboxConfig,
    ) -> Result<Present, ImageError> {
        let image = wanted.image;
        let credentials = self.credentials(wanted).await;
        let text = format!("Pulling image \"{image}\"");
        self.tell(wanted, EventKind::Normal, PULLING, text);
        let started = self.clock.now();
        let pull = self.pulls.join(&wanted.tagged, credentials, sandbox).await;
        let result = pull.await;
        let waited = self.clock.now().saturating_duration_since(started);
        match result {
            Ok(pulled) => {
                self.tell(
                    wanted,
                    EventKind::Normal,
                    PULLED,
                    success(image, &pulled, waited),
                );
                Ok(Present {
                    image: image.to_owned(),
                    id: pulled.id,
                    user: pulled.user,
                })
            }
            Err(words) => {
                let text = format!("Failed to pull image \"{image}\": {words}");
                self.tell(wanted, EventKind::Warning, FAILED, text);
                Err(ImageError::of_pull(image, words))
            }
        }
    }

    /// What the pod's pull secrets hold for the image's registry, and then what the node itself has
    /// for it. A Secret that is not there does not stop the pull: the image may be for everyone.
    async fn credentials(&self, wanted: &Wanted<'_>) -> Vec<ImageAuth> {
        let mut keyring = Keyring::default();
        let mut missing = Vec::new();
        for secret in pull_secrets(wanted.pod) {
            let data = self.control_plane.referenced(&secret).await;
            let added = data.ok().flatten().is_some_and(|data| keyring.add(&data));
            if !added {
                missing.push(secret.name);
            }
        }
        if !missing.is_empty() {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image \
                 may not succeed.",
                missing.join(", ")
            );
            let reason = FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET;
            self.recorder
                .pod(wanted.pod, None, EventKind::Warning, reason, text);
        }
        let name = wanted.reference.name();
        let mut all = keyring.look_up(&name);
        all.extend(self.node_keyring().await.look_up(&name));
        all
    }

    /// The first of the node's files that can be understood.
    async fn node_keyring(&self) -> Keyring {
        let mut keyring = Keyring::default();
        for document in self.node_credentials.documents().await {
            if keyring.add(&document) {
                break;
            }
        }
        keyring
    }

    fn tell(&self, wanted: &Wanted<'_>, kind: EventKind, reason: &str, text: String) {
        let container = Some(wanted.container.name.as_str());
        self.recorder.pod(wanted.pod, container, kind, reason, text);
    }

    fn warn(&self, pod: &Pod, container: &Container, reason: &str, error: &ImageError) {
        let container = Some(container.name.as_str());
        let (kind, text) = (EventKind::Warning, error.to_string());
        self.recorder.pod(pod, container, kind, reason, text);
    }
}

/// The Secrets that `spec.imagePullSecrets` names.
pub(crate) fn pull_secrets(pod: &Pod) -> Vec<ObjectRef> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let named = spec
        .into_iter()
        .flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    named
        .filter(|one| !one.name.is_empty())
        .map(|one| ObjectRef {
            kind: RefKind::Secret,
            namespace: namespace.clone(),
            name: one.name.clone(),
        })
        .collect()
}

fn success(image: &str, pulled: &Pulled, waited: Duration) -> String {
    format!(
        "Successfully pulled image \"{image}\" in {} ({} including waiting). Image size: {} bytes.",
        go_duration(pulled.took),
        go_duration(waited),
        pulled.size_bytes
    )
}

/// A duration cut to milliseconds, as Go prints it: `5ms`, `1.2s`, `1m0.05s`.
fn go_duration(duration: Duration) -> String {
    let all_ms = duration.as_millis();
    if all_ms == 0 {
        return "0s".to_owned();
    }
    if all_ms < 1000 {
        return format!("{all_ms}ms");
    }
    let (minutes, ms) = (all_ms / 60_000, all_ms % 60_000);
    let seconds = match (ms / 1000, ms % 1000) {
        (seconds, 0) => format!("{seconds}s"),
        (seconds, rest) => {
            let rest = format!("{rest:03}");
            format!("{seconds}.{}s", rest.trim_end_matches('0'))
        }
    };
    match (minutes / 60, minutes % 60) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}
