//! An API server of one test's own.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use swiftlet_api::pki::Pki;
use swiftlet_api::token::SigningKey;
use swiftlet_api::{ApiOptions, ApiServer, Mount, NodeClient, Server, ServerOptions};
use swiftlet_client::api::{
    Api, ApiError, DeleteParameters, ObjectName, PatchKind, RawEvent, RawWatch, ResourceName,
    Selection, UserInfo, resources,
};
use swiftlet_store::{Limits, Store, StoreOptions};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for something that happens at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server without a socket.
pub(crate) struct Inside {
    pub(crate) api: ApiServer,
    pub(crate) door: Arc<dyn Api>,
}

pub(crate) async fn inside() -> Inside {
    inside_with(Limits::default()).await
}

pub(crate) async fn inside_with(limits: Limits) -> Inside {
    inside_of(limits, None).await
}

/// A server that asks nodes under an identity, if it has one.
async fn inside_of(limits: Limits, node_client: Option<NodeClient>) -> Inside {
    let options = StoreOptions {
        limits,
        ..StoreOptions::in_memory()
    };
    let (store, _) = Store::open(options).await.expect("a store in memory opens");
    let options = ApiOptions {
        signing_key: Some(SigningKey::generate().expect("a key can be made")),
        node_client,
        ..ApiOptions::default()
    };
    let api = ApiServer::new(store, options);
    api.bootstrap()
        .await
        .expect("the first namespaces can be made");
    let door = api.local(user("kubernetes-admin", &["system:masters"]));
    Inside { api, door }
}

pub(crate) fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: groups.iter().map(ToString::to_string).collect(),
        ..UserInfo::default()
    }
}

impl Inside {
    pub(crate) async fn create(
        &self,
        resource: ResourceName,
        object: Value,
    ) -> Result<Value, ApiError> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let name = ObjectName::new(resource, namespace, "");
        self.door
            .create(&name, encoded(&object))
            .await
            .map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn get(&self, name: &ObjectName) -> Result<Value, ApiError> {
        self.door.get(name).await.map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn update(
        &self,
        name: &ObjectName,
        object: &Value,
    ) -> Result<Value, ApiError> {
        self.door
            .update(name, encoded(object))
            .await
            .map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn merge(&self, name: &ObjectName, patch: Value) -> Result<Value, ApiError> {
        let patched = self
            .door
            .patch(name, PatchKind::Merge, encoded(&patch))
            .await;
        patched.map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn delete(
        &self,
        name: &ObjectName,
        grace_s: Option<i64>,
    ) -> Result<Value, ApiError> {
        let parameters = DeleteParameters {
            grace_period_seconds: grace_s,
            ..DeleteParameters::default()
        };
        self.door
            .delete(name, parameters)
            .await
            .map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn bind(&self, pod: &ObjectName, node: &str) -> Result<Value, ApiError> {
        let binding = json!({ "target": { "kind": "Node", "name": node } });
        let name = pod.clone().with_subresource("binding");
        self.door
            .create(&name, encoded(&binding))
            .await
            .map(|bytes| decoded(&bytes))
    }

    pub(crate) async fn revision(&self, resource: ResourceName) -> u64 {
        let selection = Selection::all(resource);
        self.door
            .list(&selection)
            .await
            .expect("a list is possible")
            .resource_version
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "busybox:1.35" }] },
    })
}

pub(crate) fn pod_name(name: &str) -> ObjectName {
    ObjectName::new(resources::PODS, "default", name)
}

pub(crate) fn config_map(name: &str, data: Value) -> Value {
    json!({ "metadata": { "name": name, "namespace": "default" }, "data": data })
}

pub(crate) fn encoded(value: &Value) -> Bytes {
    value.to_string().into()
}

pub(crate) fn decoded(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("answers are JSON")
}

/// The next event of a watch.
pub(crate) async fn next(watch: &mut RawWatch) -> Result<RawEvent, ApiError> {
    let next = tokio::time::timeout(PATIENCE, watch.next()).await;
    next.expect("an event comes").expect("the watch goes on")
}

/// A server with a socket.
pub(crate) struct Outside {
    pub(crate) inside: Inside,
    pub(crate) pki: Pki,
    pub(crate) data: TempDir,
    pub(crate) url: String,
    pub(crate) address: std::net::SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

pub(crate) async fn outside() -> Outside {
    outside_with(Vec::new()).await
}

pub(crate) async fn outside_with(mounts: Vec<Mount>) -> Outside {
    let data = tempfile::tempdir().expect("a folder can be made");
    let pki = Pki::open(data.path()).expect("a CA can be made");
    let identity = pki.kubelet_client().expect("a certificate can be made");
    let client = NodeClient::new(&identity, pki.ca_pem()).expect("it can be used");
    let inside = inside_of(Limits::default(), Some(client)).await;
    let options = ServerOptions {
        address: "127.0.0.1:0".parse().expect("this is an address"),
        identity: pki.serving(&[]).expect("a certificate can be made"),
        client_ca_pem: pki.ca_pem().into(),
    };
    let server = Server::bind(inside.api.clone(), options)
        .await
        .expect("a port is free");
    let server = mounts.into_iter().fold(server, Server::mount);
    let address = server.address();
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(server.run(shutdown.clone()));
    Outside {
        inside,
        pki,
        data,
        url: format!("https://{address}"),
        address,
        shutdown,
        task,
    }
}

impl Outside {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        let stopped = tokio::time::timeout(PATIENCE, self.task).await;
        stopped
            .expect("the server stops")
            .expect("the server does not panic");
    }
}
