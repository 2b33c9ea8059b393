//! Events about objects, sent in the background.
//!
//! Recording never waits: an event that finds the queue full is dropped, as in Kubernetes. The same
//! event about the same object is counted up, not created again.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::{Api, PatchKind};
use crate::client::{Client, Object, ObjectKey};
use crate::error::ClientError;

/// Most events that wait to be sent.
const EVENT_QUEUE_MAX: usize = 1024;
/// Most distinct events that are remembered for counting (client-go's `maxLruCacheEntries`).
const REMEMBERED_MAX: usize = 4096;
/// Longest message of an event (Kubernetes' `NoteLengthLimit`).
const MESSAGE_BYTES_MAX: usize = 1024;

/// Sends events. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
}

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// All is as it should be.
    Normal,
    /// Someone should look.
    Warning,
}

struct Note {
    about: ObjectReference,
    kind: EventType,
    reason: &'static str,
    message: String,
    at: Timestamp,
}

/// What makes two events the same one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Identity {
    uid: String,
    reason: &'static str,
    message: String,
}

struct Remembered {
    key: ObjectKey,
    count: i32,
}

struct Sender {
    client: Client,
    component: &'static str,
    remembered: HashMap<Identity, Remembered>,
}

impl Recorder {
    /// A recorder for a component such as `default-scheduler`; its task ends with `shutdown`.
    pub fn spawn(api: Arc<dyn Api>, component: &'static str, shutdown: CancellationToken) -> Self {
        let (queue, mut notes) = mpsc::channel::<Note>(EVENT_QUEUE_MAX);
        let client = Client::new(api);
        let mut sender = Sender {
            client,
            component,
            remembered: HashMap::new(),
        };
        tokio::spawn(shutdown.run_until_cancelled_owned(async move {
            while let Some(note) = notes.recv().await {
                if let Err(error) = sender.send(note).await {
                    debug!(%error, "event not recorded");
                }
            }
        }));
        Self { queue }
    }

    /// Records an event about an object. Never waits.
    pub fn record<T: Object>(
        &self,
        about: &T,
        kind: EventType,
        reason: &'static str,
        message: &str,
    ) {
        let note = Note {
            about: reference(about),
            kind,
            reason,
            message: truncated(message),
            at: Timestamp::now(),
        };
        if self.queue.try_send(note).is_err() {
            debug!(reason, "event dropped: the queue is full");
        }
    }
}

impl Sender {
    async fn send(&mut self, note: Note) -> Result<(), ClientError> {
        let identity = Identity {
            uid: note.about.uid.clone().unwrap_or_default(),
            reason: note.reason,
            message: note.message.clone(),
        };
        if let Some(remembered) = self.remembered.get_mut(&identity) {
            let count = remembered.count.saturating_add(1);
            let patch = json!({"count": count, "lastTimestamp": Time(note.at)});
            let patched = self
                .client
                .patch::<Event>(&remembered.key, PatchKind::Merge, &patch)
                .await;
            match patched {
                Ok(_) => {
                    remembered.count = count;
                    return Ok(());
                }
                // Somebody removed it: create it anew.
                Err(error) if error.is_not_found() => (),
                Err(error) => return Err(error),
            }
        }
        let event = self.event(note);
        self.client.create(&event).await?;
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(
            identity,
            Remembered {
                key: event.key(),
                count: 1,
            },
        );
        Ok(())
    }

    fn event(&self, note: Note) -> Event {
        let namespace = match note.about.namespace.as_deref() {
            Some(namespace) if !namespace.is_empty() => namespace.to_owned(),
            // Events about cluster-scoped objects live in `default`.
            _ => "default".to_owned(),
        };
        let object_name = note.about.name.as_deref().unwrap_or_default();
        let kind = match note.kind {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object_name}.{:x}", note.at.as_nanosecond())),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: note.about,
            reason: Some(note.reason.to_owned()),
            message: Some(note.message),
            type_: Some(kind.to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(note.at)),
            last_timestamp: Some(Time(note.at)),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.component.to_owned()),
            reporting_instance: Some(String::new()),
            ..Event::default()
        }
    }
}

fn reference<T: Object>(object: &T) -> ObjectReference {
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(T::API_VERSION.to_owned()),
        kind: Some(T::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

fn truncated(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}
