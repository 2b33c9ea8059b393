//! The informers that all controllers share: one watch per resource.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use swiftlet_client::api::Api;
use swiftlet_client::informer::Informer;
use swiftlet_client::reflector::{Index, Store};
use tokio_util::sync::CancellationToken;

use crate::owner::{by_controllerless_namespace, by_owner};

/// Objects by the uid of each owner.
pub(crate) const OWNER: &str = "owner";
/// Objects that no controller owns, by namespace.
pub(crate) const ORPHAN: &str = "orphan";
/// Pods by the name of their node.
pub(crate) const NODE: &str = "node";

/// Not yet started informers.
pub(crate) struct Informers {
    pub(crate) pods: Informer<Pod>,
    pub(crate) replica_sets: Informer<ReplicaSet>,
    pub(crate) deployments: Informer<Deployment>,
    pub(crate) nodes: Informer<Node>,
    pub(crate) leases: Informer<Lease>,
    pub(crate) namespaces: Informer<Namespace>,
    pub(crate) service_accounts: Informer<ServiceAccount>,
}

/// Their stores. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stores {
    pub(crate) pods: Store<Pod>,
    pub(crate) replica_sets: Store<ReplicaSet>,
    pub(crate) deployments: Store<Deployment>,
    pub(crate) nodes: Store<Node>,
    pub(crate) leases: Store<Lease>,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) service_accounts: Store<ServiceAccount>,
}

impl Informers {
    pub(crate) fn new(api: &Arc<dyn Api>) -> Self {
        let api = || Arc::clone(api);
        let node = Index {
            name: NODE,
            values: node_name as fn(&Pod) -> Vec<String>,
        };
        Self {
            pods: Informer::new(api(), vec![owner_index(), orphan_index(), node]),
            replica_sets: Informer::new(api(), vec![owner_index(), orphan_index()]),
            deployments: Informer::new(api(), vec![owner_index()]),
            nodes: Informer::new(api(), Vec::new()),
            leases: Informer::new(api(), Vec::new()),
            namespaces: Informer::new(api(), Vec::new()),
            service_accounts: Informer::new(api(), Vec::new()),
        }
    }

    pub(crate) fn stores(&self) -> Stores {
        Stores {
            pods: self.pods.store(),
            replica_sets: self.replica_sets.store(),
            deployments: self.deployments.store(),
            nodes: self.nodes.store(),
            leases: self.leases.store(),
            namespaces: self.namespaces.store(),
            service_accounts: self.service_accounts.store(),
        }
    }

    pub(crate) fn spawn(self, shutdown: &CancellationToken) {
        self.pods.spawn(shutdown.clone());
        self.replica_sets.spawn(shutdown.clone());
        self.deployments.spawn(shutdown.clone());
        self.nodes.spawn(shutdown.clone());
        self.leases.spawn(shutdown.clone());
        self.namespaces.spawn(shutdown.clone());
        self.service_accounts.spawn(shutdown.clone());
    }
}

impl Stores {
    /// Waits for the first lists.
    pub(crate) async fn synced(&self) {
        self.pods.wait_synced().await;
        self.replica_sets.wait_synced().await;
        self.deployments.wait_synced().await;
        self.nodes.wait_synced().await;
        self.leases.wait_synced().await;
        self.namespaces.wait_synced().await;
        self.service_accounts.wait_synced().await;
    }
}

fn owner_index<T: swiftlet_client::Object>() -> Index<T> {
    Index {
        name: OWNER,
        values: by_owner,
    }
}

fn orphan_index<T: swiftlet_client::Object>() -> Index<T> {
    Index {
        name: ORPHAN,
        values: by_controllerless_namespace,
    }
}

fn node_name(pod: &Pod) -> Vec<String> {
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    name.into_iter().filter(|name| !name.is_empty()).collect()
}
