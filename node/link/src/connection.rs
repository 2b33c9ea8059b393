//! The task that owns the connection.

mod interests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::{ControlPlaneError, ControlPlaneEvent};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_proto::v1::node_link_client::NodeLinkClient;
use swiftlet_proto::v1::{
    Ack, ControlMessage, Hello, NodeMessage, PodRemoved, PodSnapshot, control_message, node_message,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::transport::Transport;
pub(crate) use interests::{Ask, Subject};
use interests::{Interests, interest};

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

/// How long requests wait for a connection that is being made, before they are answered without
/// one: a static pod must not wait for a control plane whose machine is gone.
const OPEN_PATIENCE: Duration = Duration::from_millis(250);

pub(crate) type Done<T> = oneshot::Sender<Result<T, ControlPlaneError>>;

/// What callers ask of the connection.
pub(crate) enum Request {
    /// Send, and answer when acknowledged.
    Report {
        message: node_message::Message,
        done: Done<Bytes>,
    },
    /// Send if connected.
    BestEffort { message: node_message::Message },
    /// Answer what is known of a subject, now or when the control plane has said it.
    Ask(Ask),
    /// End the interest in a subject.
    Forget(Subject),
}

/// Everything that can wake an open connection.
enum Event<'a> {
    /// A request, and a place for it in the outgoing queue.
    Request(mpsc::Permit<'a, NodeMessage>, Request),
    Message(ControlMessage),
    /// What nobody needs has lingered long enough.
    Lingered,
    /// The stream ended or broke.
    Lost(String),
    /// All handles are gone.
    Shutdown,
}

struct Open {
    outgoing: mpsc::Sender<NodeMessage>,
    incoming: Streaming<ControlMessage>,
}

pub(crate) struct Connection {
    node_name: String,
    version: String,
    events: mpsc::Sender<ControlPlaneEvent>,
    /// The control plane has spoken. Written here alone, read by the handles.
    reached: Arc<AtomicBool>,
    sequence: u64,
    unacknowledged: HashMap<u64, Done<Bytes>>,
    interests: Interests,
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
            reached: Arc::default(),
            sequence: 0,
            unacknowledged: HashMap::new(),
            interests: Interests::default(),
        }
    }

    /// Tells whether the control plane has ever spoken.
    pub(crate) fn reached(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.reached)
    }

    pub(crate) async fn run(mut self, transport: Transport, mut requests: mpsc::Receiver<Request>) {
        let mut pause = RECONNECT_PAUSE_MIN;
        loop {
            let opening = Box::pin(open(self.first_words(), transport.clone()));
            let opened = tokio::time::timeout(OPEN_LIMIT, opening);
            let opened = tokio::select! {
                biased;
                opened = opened => opened,
                _ = self.refuse(OPEN_PATIENCE, &mut requests) => return,
            };
            match opened {
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

    /// What is said first: who the node is, and what it is interested in.
    fn first_words(&self) -> Vec<node_message::Message> {
        let hello = Hello {
            node_name: self.node_name.clone(),
            version: self.version.clone(),
        };
        let interests = self.interests.subjects();
        [node_message::Message::Hello(hello)]
            .into_iter()
            .chain(interests.map(|subject| interest(subject, true)))
            .collect()
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
                () = end_of(self.interests.next_end()) => Event::Lingered,
            };
            match event {
                Event::Message(message) => self.message(message).await,
                Event::Request(place, request) => self.send(place, request),
                Event::Lingered => self.end_interests(&outgoing),
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
        self.interests.disconnected();
    }

    /// Between two connections: requests fail at once, but for what is known.
    async fn wait(&mut self, pause: Duration, requests: &mut mpsc::Receiver<Request>) -> Next {
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => Next::Reconnect,
            next = self.refuse(Duration::ZERO, requests) => next,
        }
    }

    /// Answers requests without a connection, after a while in which one may be made. Ends with
    /// the last handle.
    async fn refuse(&mut self, patience: Duration, requests: &mut mpsc::Receiver<Request>) -> Next {
        tokio::time::sleep(patience).await;
        while let Some(request) = requests.recv().await {
            match request {
                Request::Report { done, .. } => {
                    let _ = done.send(Err(ControlPlaneError::Disconnected));
                }
                Request::Ask(ask) => self.interests.answer_known(ask),
                Request::Forget(subject) => {
                    self.interests.forget(&subject, Instant::now());
                }
                Request::BestEffort { .. } => (),
            }
        }
        Next::Shutdown
    }

    fn send(&mut self, place: mpsc::Permit<'_, NodeMessage>, request: Request) {
        let (sequence, message) = match request {
            Request::Report { message, done } => {
                self.sequence += 1;
                self.unacknowledged.insert(self.sequence, done);
                (self.sequence, message)
            }
            Request::BestEffort { message } => (0, message),
            Request::Ask(ask) => match self.interests.ask(ask) {
                Some(subject) => (0, interest(&subject, true)),
                // The place is given back: nothing needs to be said.
                None => return,
            },
            Request::Forget(subject) => {
                if !self.interests.forget(&subject, Instant::now()) {
                    return;
                }
                (0, interest(&subject, false))
            }
        };
        place.send(NodeMessage {
            sequence,
            message: Some(message),
        });
    }

    /// A full queue only costs the control plane a few messages: what is told of a subject that is
    /// not known here is not used, and the interest ends with the connection.
    fn end_interests(&mut self, outgoing: &mpsc::Sender<NodeMessage>) {
        for subject in self.interests.ended(Instant::now()) {
            let message = Some(interest(&subject, false));
            let sequence = 0;
            let _ = outgoing.try_send(NodeMessage { sequence, message });
        }
    }

    async fn message(&mut self, message: ControlMessage) {
        // Relaxed: it guards nothing, and what is told of the message is told by a channel.
        self.reached.store(true, Ordering::Relaxed);
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
                let Some(changed) = self.interests.object(object) else {
                    return;
                };
                ControlPlaneEvent::Referenced(changed)
            }
            Some(control_message::Message::ServiceList(list)) => {
                return self.interests.services(list);
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
            ack if ack.dropped_because.is_empty() => Ok(ack.answer),
            ack => Err(ControlPlaneError::Refused(ack.dropped_because)),
        });
    }
}

/// Opens the stream, and says the first words.
async fn open(
    first_words: Vec<node_message::Message>,
    transport: Transport,
) -> Result<Open, tonic::Status> {
    let unavailable = |error: tonic::transport::Error| tonic::Status::unavailable(chain(&error));
    let channel = transport.connect().await.map_err(unavailable)?;
    let mut client = NodeLinkClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX);
    // What is said first must find room: nobody takes it before the stream is open.
    let (outgoing, messages) = mpsc::channel(OUTGOING_MAX.max(first_words.len()));
    for message in first_words {
        let message = Some(message);
        let said = NodeMessage {
            sequence: 0,
            message,
        };
        if outgoing.try_send(said).is_err() {
            break;
        }
    }
    let incoming = client.open(ReceiverStream::new(messages)).await?;
    let incoming = incoming.into_inner();
    tracing::info!("attached to the control plane");
    Ok(Open { outgoing, incoming })
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

/// Waits for that time; for ever if there is none.
async fn end_of(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
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

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
