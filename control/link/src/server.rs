//! The gRPC service: one stream per node.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use swiftlet_client::api::{Api, UserInfo};
use swiftlet_proto::v1::node_link_server::{NodeLink, NodeLinkServer};
use swiftlet_proto::v1::{
    Ack, ControlMessage, DeleteMirrorPod, Hello, Interest, NodeMessage, PodGone, Welcome,
    control_message, node_message,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::feed::{self, Command, NodeSender, ObjectId};
use crate::reports::{ReportError, Reports};

/// Messages that may wait for one node. A burst of a thousand pods fits; a node that is slower than
/// that is cut off and attaches again.
const NODE_QUEUE_MAX: usize = 4096;

/// Reports of one node that are written at the same time. They share the store's group commit.
const REPORTS_IN_FLIGHT_MAX: usize = 64;

/// Largest message: a status or an object of the API, whose own limit is 3 MiB.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The NodeLink service over an API door.
#[derive(Clone)]
pub struct LinkServer {
    api: Arc<dyn Api>,
    feed: mpsc::Sender<Command>,
    next_session: Arc<AtomicU64>,
    version: Arc<str>,
}

impl LinkServer {
    /// Starts the feed, which ends with `shutdown`; `version` is told to the nodes. Call it within
    /// a tokio runtime.
    pub fn start(api: Arc<dyn Api>, version: &str, shutdown: CancellationToken) -> Self {
        Self {
            feed: feed::start(api.clone(), shutdown),
            api,
            next_session: Arc::default(),
            version: version.into(),
        }
    }

    /// The tower service to mount at `/swiftlet.v1.NodeLink/`. Requests bear [`UserInfo`] in their
    /// extensions.
    pub fn into_service(self) -> NodeLinkServer<Self> {
        NodeLinkServer::new(self)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }
}

type Outgoing = Pin<Box<dyn Stream<Item = Result<ControlMessage, Status>> + Send>>;

#[tonic::async_trait]
impl NodeLink for LinkServer {
    type OpenStream = Outgoing;

    async fn open(
        &self,
        request: Request<Streaming<NodeMessage>>,
    ) -> Result<Response<Outgoing>, Status> {
        let user = request.extensions().get::<UserInfo>().cloned();
        let user = user.ok_or_else(|| Status::unauthenticated("a client certificate is needed"))?;
        let mut incoming = request.into_inner();
        let hello = read_hello(&mut incoming).await?;
        if user.node_name() != Some(hello.node_name.as_str()) {
            return Err(Status::permission_denied(format!(
                "user \"{}\" may not speak for node \"{}\"",
                user.name, hello.node_name
            )));
        }
        let (sender, receiver) = mpsc::channel(NODE_QUEUE_MAX);
        let welcome = Welcome {
            version: self.version.to_string(),
            revision: 0,
        };
        let message = Some(control_message::Message::Welcome(welcome));
        // The queue is new and empty: there is room.
        let _ = sender.try_send(Ok(ControlMessage { message }));
        // Relaxed: only uniqueness is asked for.
        let id = self.next_session.fetch_add(1, Ordering::Relaxed);
        tracing::info!(node = %hello.node_name, version = %hello.version, "node attached");
        tokio::spawn(self.clone().serve(hello.node_name, id, incoming, sender));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

impl LinkServer {
    /// Takes a node's reports until its stream ends.
    async fn serve(
        self,
        node: String,
        session: u64,
        incoming: Streaming<NodeMessage>,
        sender: NodeSender,
    ) {
        let attach = Command::Attach {
            node: node.clone(),
            session,
            sender: sender.clone(),
        };
        if self.feed.send(attach).await.is_err() {
            return;
        }
        let reports = Reports::new(self.api.clone(), &node);
        // A weak sender: when the feed has cut the node off, the stream must end.
        let acks = sender.downgrade();
        drop(sender);
        let handled = incoming
            .take_while(|message| std::future::ready(message.is_ok()))
            .filter_map(|message| std::future::ready(message.ok()))
            .map(|message| handle(&reports, &self.feed, message))
            .buffer_unordered(REPORTS_IN_FLIGHT_MAX);
        let mut handled = std::pin::pin!(handled);
        while let Some(ack) = handled.next().await {
            let Some(sender) = acks.upgrade() else { break };
            let message = ack.map(control_message::Message::Ack);
            if message.is_some() && sender.send(Ok(ControlMessage { message })).await.is_err() {
                break;
            }
        }
        tracing::info!(node, "node detached");
        let _ = self.feed.send(Command::Detach { node, session }).await;
    }
}

async fn read_hello(incoming: &mut Streaming<NodeMessage>) -> Result<Hello, Status> {
    match incoming.message().await?.and_then(|first| first.message) {
        Some(node_message::Message::Hello(hello)) => Ok(hello),
        _ => Err(Status::invalid_argument("the first message must be Hello")),
    }
}

/// Carries out one message; answers its acknowledgement, if it wants one and has a final answer.
async fn handle(
    reports: &Reports,
    feed: &mpsc::Sender<Command>,
    message: NodeMessage,
) -> Option<Ack> {
    let sequence = message.sequence;
    let result = carry_out(reports, feed, message.message?).await;
    if let Err(error) = &result {
        tracing::debug!(node = %reports.node, %error, "report not stored");
    }
    if sequence == 0 {
        return None;
    }
    let retry = result.as_ref().is_err_and(ReportError::is_retryable);
    let (answer, dropped_because) = match result {
        Ok(answer) => (answer, String::new()),
        Err(error) => (Bytes::new(), error.to_string()),
    };
    Some(Ack {
        sequence,
        dropped_because,
        retry,
        answer,
    })
}

/// The answer to what was asked for; reports have none.
async fn carry_out(
    reports: &Reports,
    feed: &mpsc::Sender<Command>,
    message: node_message::Message,
) -> Result<Bytes, ReportError> {
    use node_message::Message;
    let done = match message {
        Message::TokenRequest(request) => return reports.token(request).await,
        Message::CreateMirrorPod(create) => {
            return reports.create_mirror_pod(&create.pod_json).await;
        }
        Message::Hello(_) => Err(ReportError::Malformed("second Hello")),
        Message::Node(report) => reports.node(&report.node_json).await,
        Message::PodStatus(report) => reports.pod_status(report).await,
        Message::PodGone(PodGone { pod: Some(key) }) => reports.pod_gone(key).await,
        Message::DeleteMirrorPod(DeleteMirrorPod { pod: Some(key) }) => {
            reports.delete_mirror_pod(key).await
        }
        Message::PodGone(_) | Message::DeleteMirrorPod(_) => Err(ReportError::Malformed("pod")),
        Message::Lease(renewal) => reports.lease(renewal.duration_s).await,
        Message::Event(report) => reports.event(report.event_json).await,
        Message::Interest(interest) => take_interest(feed, &reports.node, interest).await,
    };
    done.map(|()| Bytes::new())
}

async fn take_interest(
    feed: &mpsc::Sender<Command>,
    node: &str,
    interest: Interest,
) -> Result<(), ReportError> {
    let Some((kind, _)) = feed::known_kind(&interest.kind) else {
        return Err(ReportError::Malformed("interest.kind"));
    };
    let object = ObjectId {
        kind,
        namespace: interest.namespace,
        name: interest.name,
    };
    let command = Command::Interest {
        node: node.to_owned(),
        object,
        wanted: interest.wanted,
    };
    // The feed lives as long as the server that holds this sender.
    let _ = feed.send(command).await;
    Ok(())
}
