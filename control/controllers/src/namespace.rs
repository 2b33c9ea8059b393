//! Namespaces: each has a default service account; one that is being deleted is emptied, then
//! finalized.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_client::api::{
    Api, ApiError, DeleteParameters, ObjectName, ResourceName, Selection, resources,
};
use swiftlet_client::informer::ChangeReceiver;
use swiftlet_client::reflector::Change;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use tokio_util::sync::CancellationToken;

use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::reconcile::{self, Again, Reconcile};

/// Namespaces that are worked on at a time (half of Kubernetes' `ConcurrentNamespaceSyncs`).
const WORKERS: usize = 5;
/// What a namespace may hold, owners before what they own.
const CONTENTS: [ResourceName; 10] = [
    resources::DEPLOYMENTS,
    resources::REPLICA_SETS,
    resources::PODS,
    resources::SERVICES,
    resources::PERSISTENT_VOLUME_CLAIMS,
    resources::CONFIG_MAPS,
    resources::SECRETS,
    resources::SERVICE_ACCOUNTS,
    resources::EVENTS,
    resources::LEASES,
];
/// When to look again at contents whose end no informer shows. The end of a pod shows itself.
const STRAGGLER_DELAY: Duration = Duration::from_secs(5);
/// The account that pods without another one use.
const DEFAULT_ACCOUNT: &str = "default";

/// The namespace controller before it runs.
pub(crate) struct NamespaceController {
    controller: Arc<Controller>,
    namespace_changes: ChangeReceiver<Namespace>,
    account_changes: ChangeReceiver<ServiceAccount>,
    pod_changes: ChangeReceiver<Pod>,
    set_changes: ChangeReceiver<ReplicaSet>,
    deployment_changes: ChangeReceiver<Deployment>,
}

struct Controller {
    client: Client,
    stores: Stores,
    queue: WorkQueue<ObjectKey>,
}

impl NamespaceController {
    pub(crate) fn new(api: &Arc<dyn Api>, informers: &mut Informers) -> Self {
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            queue: WorkQueue::new(),
        };
        Self {
            controller: Arc::new(controller),
            namespace_changes: informers.namespaces.subscribe(),
            account_changes: informers.service_accounts.subscribe(),
            pod_changes: informers.pods.subscribe(),
            set_changes: informers.replica_sets.subscribe(),
            deployment_changes: informers.deployments.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self { controller, .. } = &self;
        let controller = Arc::clone(controller);
        let stores = controller.stores.clone();
        let events = self.listen();
        reconcile::run(controller, WORKERS, stores.synced(), events, shutdown).await;
    }

    async fn listen(mut self) {
        let controller = self.controller;
        loop {
            let changed = tokio::select! {
                biased;
                Some(change) = self.namespace_changes.recv() => {
                    Some(change.object().name().to_owned())
                }
                Some(change) = self.account_changes.recv() => emptied(&change),
                Some(change) = self.pod_changes.recv() => emptied(&change),
                Some(change) = self.set_changes.recv() => emptied(&change),
                Some(change) = self.deployment_changes.recv() => emptied(&change),
                else => return,
            };
            if let Some(name) = changed {
                controller.queue.add(ObjectKey::new("", &name));
            }
        }
    }
}

/// The namespace of an object that is gone.
fn emptied<T: Object>(change: &Change<T>) -> Option<String> {
    match change {
        Change::Deleted(object) => Some(object.namespace().to_owned()),
        Change::Added(_) | Change::Updated { .. } => None,
    }
}

impl Controller {
    async fn sync(&self, name: &str) -> Result<Again, ControllerError> {
        let Some(namespace) = self.stores.namespaces.get(&ObjectKey::new("", name)) else {
            return Ok(None);
        };
        if !namespace.is_terminating() {
            self.ensure_account(name).await?;
            return Ok(None);
        }
        let mut left = 0;
        for resource in CONTENTS {
            left += self.empty(name, resource).await?;
        }
        if left > 0 {
            return Ok(Some(STRAGGLER_DELAY));
        }
        let mut emptied = (*namespace).clone();
        emptied.spec.get_or_insert_default().finalizers = Some(Vec::new());
        match self.client.update_subresource(&emptied, "finalize").await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(None),
        }
    }

    async fn ensure_account(&self, namespace: &str) -> Result<(), ControllerError> {
        let key = ObjectKey::new(namespace, DEFAULT_ACCOUNT);
        if self.stores.service_accounts.get(&key).is_some() {
            return Ok(());
        }
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some(DEFAULT_ACCOUNT.to_owned()),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        match self.client.create(&account).await {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Deletes all objects of a resource; answers how many are still there.
    async fn empty(
        &self,
        namespace: &str,
        resource: ResourceName,
    ) -> Result<usize, ControllerError> {
        let mut selection = Selection::all(resource);
        selection.namespace = Some(namespace.to_owned());
        let list = self.objects(&selection).await?;
        for bytes in list {
            let Some((name, terminating)) = name_of(&bytes) else {
                continue;
            };
            if terminating {
                continue;
            }
            let name = ObjectName::new(resource, namespace, &name);
            let background = DeleteParameters {
                propagation_policy: Some("Background".to_owned()),
                ..DeleteParameters::default()
            };
            match self.client.api().delete(&name, background).await {
                Err(error) if !error.is_not_found() => return Err(client_error(error)),
                _ => (),
            }
        }
        Ok(self.objects(&selection).await?.len())
    }

    /// A resource that the server does not serve has no objects.
    async fn objects(
        &self,
        selection: &Selection,
    ) -> Result<Vec<impl AsRef<[u8]> + use<>>, ControllerError> {
        match self.client.api().list(selection).await {
            Ok(list) => Ok(list.items),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(client_error(error)),
        }
    }
}

impl Reconcile for Controller {
    type Key = ObjectKey;
    const NAME: &'static str = "namespace";

    fn queue(&self) -> &WorkQueue<ObjectKey> {
        &self.queue
    }

    fn reconcile<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> BoxFuture<'a, Result<Again, ControllerError>> {
        Box::pin(self.sync(&key.name))
    }
}

fn client_error(error: ApiError) -> ControllerError {
    ControllerError::Client(error.into())
}

/// Name, and whether its deletion has begun.
fn name_of(bytes: &impl AsRef<[u8]>) -> Option<(String, bool)> {
    let object: serde_json::Value = serde_json::from_slice(bytes.as_ref()).ok()?;
    let metadata = object.get("metadata")?;
    let name = metadata.get("name")?.as_str()?.to_owned();
    Some((
        name,
        metadata
            .get("deletionTimestamp")
            .is_some_and(|time| !time.is_null()),
    ))
}
