//! The door that the kubelet holds: requests to the connection's task.

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Node, PodStatus};
use serde::Serialize;
use swiftlet_model::control_plane::{
    CONTROL_QUEUE_MAX, ControlPlane, ControlPlaneError, ControlPlaneReceiver, ObjectRef,
    ReferencedData,
};
use swiftlet_model::ids::PodKey;
use swiftlet_proto::v1::{
    EventReport, LeaseRenewal, NodeReport, ObjectKey, PodGone, PodStatusReport,
    node_message::Message,
};
use tokio::sync::{mpsc, oneshot};

use crate::connection::{Connection, Request};
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
        tokio::spawn(connection.run(transport, incoming));
        Ok((Self { requests }, receiver))
    }

    async fn acknowledged(&self, message: Message) -> Result<(), ControlPlaneError> {
        let (done, answer) = oneshot::channel();
        self.request(Request::Report { message, done }).await?;
        answer.await.unwrap_or(Err(ControlPlaneError::Disconnected))
    }

    async fn request(&self, request: Request) -> Result<(), ControlPlaneError> {
        self.requests
            .send(request)
            .await
            .map_err(|_| ControlPlaneError::Disconnected)
    }
}

impl ControlPlane for NodeLink {
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
            let (done, answer) = oneshot::channel();
            self.request(Request::Referenced {
                object: object.clone(),
                done,
            })
            .await?;
            answer.await.unwrap_or(Err(ControlPlaneError::Disconnected))
        })
    }

    fn forget(&self, object: &ObjectRef) {
        // A full queue only costs the control plane a few messages: the interest ends with the
        // connection.
        let _ = self.requests.try_send(Request::Forget {
            object: object.clone(),
        });
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
