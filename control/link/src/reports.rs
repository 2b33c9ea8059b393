//! What nodes report, written to the API.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use swiftlet_client::api::{Api, ApiError, DeleteParameters, ObjectName, PatchKind, resources};
use swiftlet_proto::v1::{ObjectKey, PodStatusReport};

/// Namespace of the nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Why a report had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The message lacks a part, or a part is no JSON.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The API said no.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ReportError {
    /// Whether the same report may succeed later.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, Self::Api(error) if error.code() >= 500 || error.code() == 429)
    }
}

/// Writes one node's reports.
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) node: Arc<str>,
}

impl Reports {
    /// Stores a pod's status, if the pod has still that uid and is this node's.
    pub(crate) async fn pod_status(&self, report: PodStatusReport) -> Result<(), ReportError> {
        let key = report.pod.ok_or(ReportError::Malformed("pod"))?;
        let status: Value = decode(&report.status_json, "status_json")?;
        // One request instead of read, change, write: the server applies it to the newest object.
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": key.uid},
            {"op": "test", "path": "/spec/nodeName", "value": &*self.node},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let name = ObjectName::status(resources::PODS, &key.namespace, &key.name);
        self.api
            .patch(&name, PatchKind::Json, encode(&patch))
            .await?;
        Ok(())
    }

    /// Removes the object of a pod of which nothing is left.
    pub(crate) async fn pod_gone(&self, key: ObjectKey) -> Result<(), ReportError> {
        let name = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let parameters = DeleteParameters {
            grace_period_seconds: Some(0),
            uid: Some(key.uid),
            ..DeleteParameters::default()
        };
        match self.api.delete(&name, parameters).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Creates the Node object, or brings its labels and status up to date.
    pub(crate) async fn node(&self, node_json: &Bytes) -> Result<(), ReportError> {
        let node: Value = decode(node_json, "node_json")?;
        if node["metadata"]["name"].as_str() != Some(&self.node) {
            return Err(ReportError::Malformed("node_json: metadata.name"));
        }
        let name = ObjectName::new(resources::NODES, "", &self.node);
        let metadata = json!({"metadata": {
            "labels": node["metadata"]["labels"],
            "annotations": node["metadata"]["annotations"],
        }});
        match self
            .api
            .patch(&name, PatchKind::Merge, encode(&metadata))
            .await
        {
            Err(error) if error.is_not_found() => {
                match self.api.create(&name, node_json.clone()).await {
                    Err(error) if !error.is_already_exists() => return Err(error.into()),
                    _ => (),
                }
            }
            Err(error) => return Err(error.into()),
            Ok(_) => (),
        }
        let status = json!([{"op": "add", "path": "/status", "value": node["status"]}]);
        let name = name.with_subresource("status");
        self.api
            .patch(&name, PatchKind::Json, encode(&status))
            .await?;
        Ok(())
    }

    /// Renews the node's lease.
    pub(crate) async fn lease(&self, duration_s: u32) -> Result<(), ReportError> {
        let name = ObjectName::new(resources::LEASES, LEASE_NAMESPACE, &self.node);
        let renewed_at = jiff::Timestamp::now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": &*self.node, "namespace": LEASE_NAMESPACE},
            "spec": {
                "holderIdentity": &*self.node,
                "leaseDurationSeconds": duration_s,
                "renewTime": format!("{renewed_at:.6}"),
            },
        });
        match self.api.update(&name, encode(&lease)).await {
            Err(error) if error.is_not_found() => {
                self.api.create(&name, encode(&lease)).await?;
            }
            Err(error) => return Err(error.into()),
            Ok(_) => (),
        }
        Ok(())
    }

    /// Creates an Event.
    pub(crate) async fn event(&self, event_json: Bytes) -> Result<(), ReportError> {
        let event: Value = decode(&event_json, "event_json")?;
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or("default");
        let name = ObjectName::new(resources::EVENTS, namespace, "");
        self.api.create(&name, event_json).await?;
        Ok(())
    }
}

fn decode(bytes: &[u8], part: &'static str) -> Result<Value, ReportError> {
    serde_json::from_slice(bytes).map_err(|_| ReportError::Malformed(part))
}

fn encode(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}
