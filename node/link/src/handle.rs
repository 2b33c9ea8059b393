//! The door that the kubelet holds: requests to the connection's task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::TokenRequestStatus;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus, Service};
use serde::Serialize;
use swiftlet_model::control_plane::{
    CONTROL_QUEUE_MAX, ControlPlane, ControlPlaneError, ControlPlaneReceiver, ObjectRef,
    ReferencedData, Token, TokenRequest,
};
use swiftlet_model::ids::PodKey;
use swiftlet_proto::v1::{
    CreateMirrorPod, DeleteMirrorPod, EventReport, LeaseRenewal, NodeReport, ObjectKey, PodGone,
    PodStatusReport, TokenRequest as TokenRequestMessage, node_message::Message,
};
use tokio::sync::{mpsc, oneshot};

use crate::connection::{Ask, Connection, Request, Subject};
use crate::data::data_of;
use crate::kubeconfig::Kubeconfig;
use crate::transport::{Transport, TransportError};

/// Requests that may wait for the connection's task.
const REQUESTS_MAX: usize = 1024;

/// Who the node is and where its control plane is.
#[derive(Clone, Debug)]
pub struct NodeLinkOptions {
    /// `metadata.name` of the Node; the certificate must be that of `system:node:<name>`.
    pub node_name: String,
    /// Version of the node agent, for people.
    pub version: String,
    /// Server and certificates.
    pub kubeconfig: Kubeconfig,
}

/// A handle to the link. Clones share one connection, which ends with the last of them.
#[derive(Clone)]
pub struct NodeLink {
    requests: mpsc::Sender<Request>,
    reached: Arc<AtomicBool>,
}

impl NodeLink {
    /// Starts connecting in the background; what the control plane says arrives at the receiver.
    /// Call it within a tokio runtime.
    ///
    /// # Errors
    /// The kubeconfig's certificates or address cannot be used. A control plane that does not
    /// answer is no error: the link goes on trying.
    pub fn start(options: NodeLinkOptions) -> Result<(Self, ControlPlaneReceiver), TransportError> {
        let transport = Transport::new(&options.kubeconfig)?;
        let (requests, incoming) = mpsc::channel(REQUESTS_MAX);
        let (events, receiver) = mpsc::channel(CONTROL_QUEUE_MAX);
        let connection = Connection::new(options.node_name, options.version, events);
        let reached = connection.reached();
        tokio::spawn(connection.run(transport, incoming));
        Ok((Self { requests, reached }, receiver))
    }

    async fn acknowledged(&self, message: Message) -> Result<(), ControlPlaneError> {
        self.answered(message).await.map(|_| ())
    }

    async fn answered(&self, message: Message) -> Result<Bytes, ControlPlaneError> {
        let (done, answer) = oneshot::channel();
        self.request(Request::Report { message, done }).await?;
        answer.await.unwrap_or(Err(ControlPlaneError::Disconnected))
    }

    async fn ask_object(&self, object: &ObjectRef) -> Result<Option<Bytes>, ControlPlaneError> {
        let (done, answer) = oneshot::channel();
        let ask = Ask::Object(object.clone(), done);
        self.request(Request::Ask(ask)).await?;
        answer.await.unwrap_or(Err(ControlPlaneError::Disconnected))
    }

    /// A full queue only costs the control plane a few messages: the interest ends with the
    /// connection.
    fn end_interest(&self, subject: Subject) {
        let _ = self.requests.try_send(Request::Forget(subject));
    }

    async fn request(&self, request: Request) -> Result<(), ControlPlaneError> {
        self.requests
            .send(request)
            .await
            .map_err(|_| ControlPlaneError::Disconnected)
    }
}

impl ControlPlane for NodeLink {
    fn ever_connected(&self) -> bool {
        // Relaxed: see the connection's side.
        self.reached.load(Ordering::Relaxed)
    }

    fn publish_status<'a>(
        &'a self,
        pod: &'a PodKey,
        status: &'a PodStatus,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async move {
            let status_json = encode(status)?;
            let report = PodStatusReport {
                pod: Some(object_key(pod)),
                status_json,
            };
            self.acknowledged(Message::PodStatus(report)).await
        })
    }

    fn pod_gone<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        let gone = PodGone {
            pod: Some(object_key(pod)),
        };
        Box::pin(self.acknowledged(Message::PodGone(gone)))
    }

    fn publish_node<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async move {
            let report = NodeReport {
                node_json: encode(node)?,
            };
            self.acknowledged(Message::Node(report)).await
        })
    }

    fn renew_lease(&self, duration_s: u32) -> BoxFuture<'_, Result<(), ControlPlaneError>> {
        Box::pin(self.acknowledged(Message::Lease(LeaseRenewal { duration_s })))
    }

    fn record(&self, event: Event) {
        let Ok(event_json) = encode(&event) else {
            return;
        };
        let message = Message::Event(EventReport { event_json });
        if self
            .requests
            .try_send(Request::BestEffort { message })
            .is_err()
        {
            tracing::debug!("event dropped, the link's queue is full");
        }
    }

    fn referenced<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<ReferencedData>, ControlPlaneError>> {
        Box::pin(async move {
            let json = self.ask_object(object).await?;
            Ok(json.map(|json| Arc::new(data_of(object.kind, &json))))
        })
    }

    fn forget(&self, object: &ObjectRef) {
        self.end_interest(Subject::Object(object.clone()));
    }

    fn service_account_token<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<Token, ControlPlaneError>> {
        let message = Message::TokenRequest(TokenRequestMessage {
            pod: Some(object_key(&request.pod)),
            service_account: request.service_account.clone(),
            audience: request.audience.clone(),
            expiration_s: request.expiration_s,
        });
        Box::pin(async move {
            let answer = self.answered(message).await?;
            let status: TokenRequestStatus = serde_json::from_slice(&answer)
                .map_err(|error| ControlPlaneError::Refused(error.to_string()))?;
            Ok(Token {
                token: status.token,
                expires_at: status.expiration_timestamp.0,
            })
        })
    }

    fn services<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Vec<Service>>, ControlPlaneError>> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            let ask = Ask::Services(namespace.to_owned(), done);
            self.request(Request::Ask(ask)).await?;
            answer.await.unwrap_or(Err(ControlPlaneError::Disconnected))
        })
    }

    fn forget_services(&self, namespace: &str) {
        self.end_interest(Subject::Services(namespace.to_owned()));
    }

    fn object<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Bytes>, ControlPlaneError>> {
        Box::pin(self.ask_object(object))
    }

    fn create_mirror_pod<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async move {
            let pod_json = encode(pod)?;
            self.acknowledged(Message::CreateMirrorPod(CreateMirrorPod { pod_json }))
                .await
        })
    }

    fn delete_mirror_pod<'a>(
        &'a self,
        pod: &'a PodKey,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        let pod = Some(object_key(pod));
        Box::pin(self.acknowledged(Message::DeleteMirrorPod(DeleteMirrorPod { pod })))
    }
}

fn object_key(pod: &PodKey) -> ObjectKey {
    ObjectKey {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        uid: pod.uid.to_string(),
    }
}

fn encode<T: Serialize>(object: &T) -> Result<bytes::Bytes, ControlPlaneError> {
    let json = serde_json::to_vec(object);
    json.map(Into::into)
        .map_err(|error| ControlPlaneError::Refused(error.to_string()))
}
