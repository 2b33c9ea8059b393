//! The task that owns the connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use swiftlet_model::control_plane::{
    ControlPlaneError, ControlPlaneEvent, ObjectRef, RefKind, ReferencedData,
};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_proto::v1::node_link_client::NodeLinkClient;
use swiftlet_proto::v1::{
    Ack, ControlMessage, Hello, Interest, NodeMessage, PodRemoved, PodSnapshot, ReferencedObject,
    control_message, node_message,
};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::transport::Transport;

/// Messages that may wait for the network.
const OUTGOING_MAX: usize = 1024;

/// Largest message that is read: a snapshot of all pods of a node.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// First and longest pause between two attempts to connect.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(20);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long the stream may take to be opened: a server that is being restarted must not hold the
/// node.
const OPEN_LIMIT: Duration = Duration::from_secs(5);

type Done<T> = oneshot::Sender<Result<T, ControlPlaneError>>;

/// What callers ask of the connection.
pub(crate) enum Request {
    /// Send, and answer when acknowledged.
    Report {
        message: node_message::Message,
        done: Done<()>,
    },
    /// Send if connected.
    BestEffort { message: node_message::Message },
    /// Answer the object's data, now or when the control plane has said them.
    Referenced {
        object: ObjectRef,
        done: Done<Option<ReferencedData>>,
    },
    /// End the interest in an object.
    Forget { object: ObjectRef },
}

/// Everything that can wake an open connection.
enum Event<'a> {
    /// A request, and a place for it in the outgoing queue.
    Request(mpsc::Permit<'a, NodeMessage>, Request),
    Message(ControlMessage),
    /// The stream ended or broke.
    Lost(String),
    /// All handles are gone.
    Shutdown,
}

/// What is known of an object of interest.
enum Referenced {
    /// The control plane has not answered yet.
    Waiting(Vec<Done<Option<ReferencedData>>>),
    /// The object's data, or that there is no such object.
    Known(Option<ReferencedData>),
}

struct Open {
    outgoing: mpsc::Sender<NodeMessage>,
    incoming: Streaming<ControlMessage>,
}

pub(crate) struct Connection {
    node_name: String,
    version: String,
    events: mpsc::Sender<ControlPlaneEvent>,
    sequence: u64,
    unacknowledged: HashMap<u64, Done<()>>,
    referenced: HashMap<ObjectRef, Referenced>,
}

impl Connection {
    pub(crate) fn new(
        node_name: String,
        version: String,
        events: mpsc::Sender<ControlPlaneEvent>,
    ) -> Self {
        Self {
            node_name,
            version,
            events,
            sequence: 0,
            unacknowledged: HashMap::new(),
            referenced: HashMap::new(),
        }
    }

    pub(crate) async fn run(mut self, transport: Transport, mut requests: mpsc::Receiver<Request>) {
        let mut pause = RECONNECT_PAUSE_MIN;
        loop {
            match tokio::time::timeout(OPEN_LIMIT, self.open(&transport)).await {
                Ok(Ok(open)) => {
                    pause = RECONNECT_PAUSE_MIN;
                    if self.serve(open, &mut requests).await.is_shutdown() {
                        return;
                    }
                }
                Ok(Err(error)) => tracing::info!(%error, "control plane does not answer"),
                Err(_) => tracing::info!("control plane does not answer in time"),
            }
            if self.wait(pause, &mut requests).await.is_shutdown() {
                return;
            }
            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
        }
    }

    async fn open(&self, transport: &Transport) -> Result<Open, tonic::Status> {
        let unavailable =
            |error: tonic::transport::Error| tonic::Status::unavailable(chain(&error));
        let channel = transport.connect().await.map_err(unavailable)?;
        let mut client = NodeLinkClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        // What is said first must find room: nobody takes it before the stream is open.
        let room = OUTGOING_MAX.max(self.referenced.len() + 1);
        let (outgoing, messages) = mpsc::channel(room);
        let hello = Hello {
            node_name: self.node_name.clone(),
            version: self.version.clone(),
        };
        let first = [node_message::Message::Hello(hello)]
            .into_iter()
            .chain(self.referenced.keys().map(|object| interest(object, true)));
        for message in first {
            if outgoing
                .try_send(NodeMessage {
                    sequence: 0,
                    message: Some(message),
                })
                .is_err()
            {
                break;
            }
        }
        let incoming = client
            .open(ReceiverStream::new(messages))
            .await?
            .into_inner();
        tracing::info!(node = self.node_name, "attached to the control plane");
        Ok(Open { outgoing, incoming })
    }

    async fn serve(&mut self, open: Open, requests: &mut mpsc::Receiver<Request>) -> Next {
        let Open {
            outgoing,
            mut incoming,
        } = open;
        let next = loop {
            // What the control plane says comes first: acknowledgements free those who wait.
            // Requests do not starve, because the stream delivers at the speed of the network.
            let event = tokio::select! {
                biased;
                message = incoming.message() => match message {
                    Ok(Some(message)) => Event::Message(message),
                    Ok(None) => Event::Lost("the control plane ended the stream".to_owned()),
                    Err(status) => Event::Lost(status.to_string()),
                },
                request = next_request(&outgoing, requests) => request,
            };
            match event {
                Event::Message(message) => self.message(message).await,
                Event::Request(place, request) => self.send(place, request),
                Event::Lost(cause) => {
                    tracing::warn!(cause, "link to the control plane lost");
                    break Next::Reconnect;
                }
                Event::Shutdown => break Next::Shutdown,
            }
        };
        self.answer_all();
        let _ = self.events.send(ControlPlaneEvent::Disconnected).await;
        next
    }

    /// Nobody waits for a connection that is gone. The interests stay: the next connection asks.
    fn answer_all(&mut self) {
        for (_, done) in self.unacknowledged.drain() {
            let _ = done.send(Err(ControlPlaneError::Disconnected));
        }
        for known in self.referenced.values_mut() {
            if let Referenced::Waiting(waiting) = known {
                for done in waiting.drain(..) {
                    let _ = done.send(Err(ControlPlaneError::Disconnected));
                }
            }
        }
    }

    /// Between two connections: requests fail at once, but for cached objects.
    async fn wait(&mut self, pause: Duration, requests: &mut mpsc::Receiver<Request>) -> Next {
        let timer = tokio::time::sleep(pause);
        tokio::pin!(timer);
        loop {
            let request = tokio::select! {
                biased;
                () = &mut timer => return Next::Reconnect,
                request = requests.recv() => request,
            };
            match request {
                Some(Request::Report { done, .. }) => {
                    let _ = done.send(Err(ControlPlaneError::Disconnected));
                }
                Some(Request::Referenced { object, done }) => {
                    let _ = done.send(match self.referenced.get(&object) {
                        Some(Referenced::Known(data)) => Ok(data.clone()),
                        _ => Err(ControlPlaneError::Disconnected),
                    });
                }
                Some(Request::Forget { object }) => drop(self.referenced.remove(&object)),
                Some(Request::BestEffort { .. }) => (),
                None => return Next::Shutdown,
            }
        }
    }

    fn send(&mut self, place: mpsc::Permit<'_, NodeMessage>, request: Request) {
        let (sequence, message) = match request {
            Request::Report { message, done } => {
                self.sequence += 1;
                self.unacknowledged.insert(self.sequence, done);
                (self.sequence, message)
            }
            Request::BestEffort { message } => (0, message),
            Request::Referenced { object, done } => {
                let message = interest(&object, true);
                let nobody = || Referenced::Waiting(Vec::new());
                match self.referenced.entry(object).or_insert_with(nobody) {
                    Referenced::Known(data) => drop(done.send(Ok(data.clone()))),
                    Referenced::Waiting(waiting) => waiting.push(done),
                }
                (0, message)
            }
            Request::Forget { object } => {
                self.referenced.remove(&object);
                (0, interest(&object, false))
            }
        };
        place.send(NodeMessage {
            sequence,
            message: Some(message),
        });
    }

    async fn message(&mut self, message: ControlMessage) {
        let event = match message.message {
            Some(control_message::Message::PodSnapshot(snapshot)) => pods(snapshot),
            Some(control_message::Message::PodUpsert(upsert)) => {
                let Some(pod) = decode_pod(&upsert.pod_json) else {
                    return;
                };
                ControlPlaneEvent::PodUpsert(pod)
            }
            Some(control_message::Message::PodRemoved(PodRemoved { pod: Some(key) })) => {
                let uid = PodUid::from(key.uid);
                ControlPlaneEvent::PodRemoved(PodKey {
                    namespace: key.namespace,
                    name: key.name,
                    uid,
                })
            }
            Some(control_message::Message::Ack(ack)) => return self.acknowledge(ack),
            Some(control_message::Message::ReferencedObject(object)) => {
                let Some(changed) = self.remember(object) else {
                    return;
                };
                ControlPlaneEvent::Referenced(changed)
            }
            Some(control_message::Message::Welcome(welcome)) => {
                return tracing::debug!(version = welcome.version, "welcome");
            }
            Some(control_message::Message::PodRemoved(_)) | None => return,
        };
        // The kubelet is gone: the handles will be dropped next.
        let _ = self.events.send(event).await;
    }

    fn acknowledge(&mut self, ack: Ack) {
        let Some(done) = self.unacknowledged.remove(&ack.sequence) else {
            return;
        };
        let _ = done.send(match ack {
            Ack { retry: true, .. } => Err(ControlPlaneError::Disconnected),
            ack if ack.dropped_because.is_empty() => Ok(()),
            ack => Err(ControlPlaneError::Refused(ack.dropped_because)),
        });
    }

    /// Keeps an object's data; answers its name if they changed after the first time.
    fn remember(&mut self, object: ReferencedObject) -> Option<ObjectRef> {
        let kind = match object.kind.as_str() {
            "ConfigMap" => RefKind::ConfigMap,
            "Secret" => RefKind::Secret,
            _ => return None,
        };
        let data = object
            .object_json
            .as_deref()
            .map(|json| Arc::new(data_of(kind, json)));
        let name = ObjectRef {
            kind,
            namespace: object.namespace,
            name: object.name,
        };
        // An answer to an interest that was given up meanwhile.
        let known = self.referenced.get_mut(&name)?;
        match std::mem::replace(known, Referenced::Known(data.clone())) {
            Referenced::Known(before) => (before != data).then_some(name),
            Referenced::Waiting(waiting) => {
                for done in waiting {
                    let _ = done.send(Ok(data.clone()));
                }
                None
            }
        }
    }
}

/// The next request, taken only when there is a place for it: what cannot be sent must not keep the
/// connection from being read. Cancel safe.
async fn next_request<'a>(
    outgoing: &'a mpsc::Sender<NodeMessage>,
    requests: &mut mpsc::Receiver<Request>,
) -> Event<'a> {
    let Ok(place) = outgoing.reserve().await else {
        return Event::Lost("the stream takes nothing any more".to_owned());
    };
    match requests.recv().await {
        Some(request) => Event::Request(place, request),
        None => Event::Shutdown,
    }
}

/// What to do after a connection ended.
enum Next {
    Reconnect,
    Shutdown,
}

impl Next {
    fn is_shutdown(&self) -> bool {
        matches!(self, Self::Shutdown)
    }
}

fn interest(object: &ObjectRef, wanted: bool) -> node_message::Message {
    node_message::Message::Interest(Interest {
        kind: object.kind.as_str().to_owned(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        wanted,
    })
}

fn pods(snapshot: PodSnapshot) -> ControlPlaneEvent {
    ControlPlaneEvent::Pods(
        snapshot
            .pods_json
            .iter()
            .filter_map(|pod| decode_pod(pod))
            .collect(),
    )
}

/// A pod that cannot be decoded is left out, so that it does not take the others with it.
fn decode_pod(json: &[u8]) -> Option<Arc<Pod>> {
    let pod = serde_json::from_slice(json);
    pod.map(Arc::new)
        .inspect_err(|error| tracing::error!(%error, "a pod cannot be decoded"))
        .ok()
}

/// `data` and `binaryData` of a ConfigMap, `data` of a Secret, as bytes.
fn data_of(kind: RefKind, json: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let object: Value = serde_json::from_slice(json).unwrap_or_default();
    let mut data = BTreeMap::new();
    let mut take = |field: &str, encoded: bool| {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let text = value.as_str().unwrap_or_default();
            let bytes = if encoded {
                BASE64.decode(text).unwrap_or_default()
            } else {
                text.into()
            };
            data.insert(key.clone(), bytes);
        }
    };
    take("data", kind == RefKind::Secret);
    take("binaryData", true);
    data
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
