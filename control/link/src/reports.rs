//! What nodes report, written to the API.

mod conditions;
mod mirrors;
mod tokens;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use swiftlet_client::api::{Api, ApiError, DeleteParameters, ObjectName, PatchKind, resources};
use swiftlet_proto::v1::{ObjectKey, PodStatusReport};

/// Times that a status is merged again after somebody else wrote to the pod first.
const MERGES_MAX: usize = 16;

/// Namespace of the nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Why a report had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The message lacks a part, or a part is no JSON.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The node may not say this.
    #[error("refused: {0}")]
    Refused(&'static str),
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
    /// The last Node object that the node sent in this session. Locked for a copy of a handle.
    last_node: Arc<Mutex<Option<Bytes>>>,
}

impl Reports {
    /// The reports of a node's new session.
    pub(crate) fn new(api: Arc<dyn Api>, node: &str) -> Self {
        Self {
            api,
            node: node.into(),
            last_node: Arc::default(),
        }
    }

    /// Stores a pod's status, if the pod has still that uid and is this node's.
    pub(crate) async fn pod_status(&self, report: PodStatusReport) -> Result<(), ReportError> {
        let key = report.pod.ok_or(ReportError::Malformed("pod"))?;
        let mut status: Value = decode(&report.status_json, "status_json")?;
        let pod = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let name = ObjectName::status(resources::PODS, &key.namespace, &key.name);
        if !status.is_object() {
            return Err(ReportError::Malformed("status_json"));
        }
        let sent = status["conditions"].take();
        let mut attempts = 0;
        loop {
            attempts += 1;
            // Conditions of others may have come while the status was on its way: what is merged
            // with them holds for this state of the pod alone.
            let stored = conditions::Stored::of(&self.api.get(&pod).await?)?;
            status["conditions"] = conditions::merged(&sent, &stored);
            let patch = json!([
                {"op": "test", "path": "/metadata/uid", "value": key.uid},
                {"op": "test", "path": "/spec/nodeName", "value": &*self.node},
                {"op": "test", "path": "/metadata/resourceVersion", "value": stored.revision()},
                {"op": "add", "path": "/status", "value": status},
            ]);
            let patched = self.api.patch(&name, PatchKind::Json, encode(&patch));
            match patched.await {
                Err(error) if attempts < MERGES_MAX && stored.is_outdated(self, &pod).await => {
                    tracing::debug!(%error, pod = key.name, "the pod has changed, merged again");
                }
                patched => return Ok(patched.map(drop)?),
            }
        }
    }

    /// Removes the object of a pod of which nothing is left: one that was being deleted here.
    pub(crate) async fn pod_gone(&self, key: ObjectKey) -> Result<(), ReportError> {
        if key.uid.is_empty() {
            return Err(ReportError::Malformed("pod.uid"));
        }
        let name = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let pod = match self.api.get(&name).await {
            Ok(pod) => decode(&pod, "stored pod")?,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if pod["metadata"]["uid"] != *key.uid {
            // A successor of the same name: the reported pod is gone already.
            return Ok(());
        }
        if pod["spec"]["nodeName"] != *self.node {
            return Err(ReportError::Refused("the pod is on another node"));
        }
        if !pod["metadata"]["deletionTimestamp"].is_string() {
            return Err(ReportError::Refused("the pod is not being deleted"));
        }
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
        let last = Some(node_json.clone());
        *self
            .last_node
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = last;
        let name = ObjectName::new(resources::NODES, "", &self.node);
        let mut metadata = json!({"metadata": {}});
        for field in ["labels", "annotations"] {
            // A null would remove what others wrote there.
            if node["metadata"][field].is_object() {
                metadata["metadata"][field] = node["metadata"][field].clone();
            }
        }
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
        self.repair_node().await
    }

    /// A node that was silent for a while is marked as unknown, or somebody deleted its object;
    /// the agent knows nothing of it, so what it said last is written again.
    async fn repair_node(&self) -> Result<(), ReportError> {
        let last = self.last_node.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner).clone();
        let Some(node_json) = last else {
            return Ok(());
        };
        let name = ObjectName::new(resources::NODES, "", &self.node);
        let is_known = match self.api.get(&name).await {
            Ok(node) => !is_ready_unknown(&decode(&node, "stored node")?),
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        if is_known {
            return Ok(());
        }
        tracing::info!(node = %self.node, "the node's state is written again");
        self.node(&node_json).await
    }

    /// Creates an Event, or counts it again: one that has happened before comes under its old name.
    pub(crate) async fn event(&self, event_json: Bytes) -> Result<(), ReportError> {
        let event: Value = decode(&event_json, "event_json")?;
        let namespace = event["metadata"]["namespace"].as_str().unwrap_or("default");
        if event["count"].as_i64().is_some_and(|count| count > 1)
            && let Some(name) = event["metadata"]["name"].as_str()
        {
            let name = ObjectName::new(resources::EVENTS, namespace, name);
            let again = json!({
                "count": event["count"],
                "lastTimestamp": event["lastTimestamp"],
            });
            let counted = self.api.patch(&name, PatchKind::Merge, encode(&again));
            match counted.await {
                // It was too old to be kept.
                Err(error) if error.is_not_found() => {}
                counted => return Ok(counted.map(drop)?),
            }
        }
        let name = ObjectName::new(resources::EVENTS, namespace, "");
        self.api.create(&name, event_json).await?;
        Ok(())
    }
}

fn is_ready_unknown(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "Unknown")
}

fn decode(bytes: &[u8], part: &'static str) -> Result<Value, ReportError> {
    serde_json::from_slice(bytes).map_err(|_| ReportError::Malformed(part))
}

fn encode(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

#[cfg(test)]
mod tests;
