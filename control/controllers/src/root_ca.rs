//! The cluster's certificate authority in each namespace: what pods verify the API server with.
//! (Kubernetes: `pkg/controller/certificates/rootcacertpublisher`.)

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use swiftlet_client::api::{Api, Selection};
use swiftlet_client::informer::{ChangeReceiver, Informer};
use swiftlet_client::reflector::Store;
use swiftlet_client::work_queue::WorkQueue;
use swiftlet_client::{Client, Object, ObjectKey};
use tokio_util::sync::CancellationToken;

use crate::error::ControllerError;
use crate::informers::{Informers, Stores};
use crate::reconcile::{self, Again, Reconcile};

/// Namespaces that are worked on at a time.
const WORKERS: usize = 1;
/// The name of the ConfigMaps.
const NAME: &str = "kube-root-ca.crt";
/// The key of the certificate in them.
const KEY: &str = "ca.crt";
/// Says what the ConfigMap is, as Kubernetes says it.
const DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
     endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
     guaranteed across distributions of Kubernetes clusters.",
);

/// The controller before it runs.
pub(crate) struct RootCaController {
    controller: Arc<Controller>,
    maps: Informer<ConfigMap>,
    map_changes: ChangeReceiver<ConfigMap>,
    namespace_changes: ChangeReceiver<Namespace>,
}

struct Controller {
    client: Client,
    stores: Stores,
    maps: Store<ConfigMap>,
    queue: WorkQueue<ObjectKey>,
    certificate_pem: String,
}

impl RootCaController {
    pub(crate) fn new(api: &Arc<dyn Api>, informers: &mut Informers, pem: String) -> Self {
        // Other ConfigMaps are no business of any controller, and are not kept here.
        let mut selection = Selection::all(ConfigMap::RESOURCE);
        selection.field_selector = format!("metadata.name={NAME}");
        let mut maps = Informer::of(Arc::clone(api), selection, Vec::new());
        let controller = Controller {
            client: Client::new(Arc::clone(api)),
            stores: informers.stores(),
            maps: maps.store(),
            queue: WorkQueue::new(),
            certificate_pem: pem,
        };
        Self {
            controller: Arc::new(controller),
            map_changes: maps.subscribe(),
            maps,
            namespace_changes: informers.namespaces.subscribe(),
        }
    }

    pub(crate) async fn run(self, shutdown: CancellationToken) {
        let Self {
            controller,
            maps,
            mut map_changes,
            mut namespace_changes,
        } = self;
        maps.spawn(shutdown.clone());
        let listener = Arc::clone(&controller);
        let events = async move {
            loop {
                let namespace = tokio::select! {
                    biased;
                    Some(change) = namespace_changes.recv() => change.object().name().to_owned(),
                    Some(change) = map_changes.recv() => change.object().namespace().to_owned(),
                    else => return,
                };
                listener.queue.add(ObjectKey::new("", &namespace));
            }
        };
        let (stores, store) = (controller.stores.clone(), controller.maps.clone());
        let synced = async move {
            stores.synced().await;
            store.wait_synced().await;
        };
        reconcile::run(controller, WORKERS, synced, events, shutdown).await;
    }
}

impl Controller {
    async fn sync(&self, namespace: &str) -> Result<Again, ControllerError> {
        let known = self.stores.namespaces.get(&ObjectKey::new("", namespace));
        if known.is_none_or(|namespace| namespace.is_terminating()) {
            return Ok(None);
        }
        let data = BTreeMap::from([(KEY.to_owned(), self.certificate_pem.clone())]);
        let Some(map) = self.maps.get(&ObjectKey::new(namespace, NAME)) else {
            return self.create(namespace, data).await;
        };
        if map.data.as_ref() == Some(&data) {
            return Ok(None);
        }
        let mut map = (*map).clone();
        map.data = Some(data);
        self.client.update(&map).await?;
        Ok(None)
    }

    async fn create(
        &self,
        namespace: &str,
        data: BTreeMap<String, String>,
    ) -> Result<Again, ControllerError> {
        let (key, text) = DESCRIPTION;
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(namespace.to_owned()),
                annotations: Some(BTreeMap::from([(key.to_owned(), text.to_owned())])),
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        match self.client.create(&map).await {
            Err(error) if !error.is_already_exists() => Err(error.into()),
            _ => Ok(None),
        }
    }
}

impl Reconcile for Controller {
    type Key = ObjectKey;
    const NAME: &'static str = "root-ca";

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
