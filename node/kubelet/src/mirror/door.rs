//! The control plane's door as workers see it: static pods go by the uid of their mirror pods, and
//! the Services that were known last are there without a connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus, Service};
use swiftlet_model::control_plane::{
    ControlPlane, ControlPlaneError, ObjectRef, ReferencedData, Token, TokenRequest,
};
use swiftlet_model::ids::PodKey;
use tokio::sync::watch;

use super::View;

/// Services by namespace.
pub(crate) type ServicesOf = BTreeMap<String, Arc<Vec<Service>>>;

/// The door.
pub(crate) struct Door {
    inner: Arc<dyn ControlPlane>,
    view: watch::Receiver<View>,
    /// What was known last. Many workers ask, each holds the lock for a look-up.
    services: Mutex<ServicesOf>,
}

impl Door {
    pub(crate) fn new(inner: Arc<dyn ControlPlane>, view: watch::Receiver<View>) -> Self {
        Self {
            inner,
            view,
            services: Mutex::default(),
        }
    }

    /// The Services that were known last.
    pub(crate) fn last_services(&self) -> ServicesOf {
        let services = self.services.lock();
        services.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what an earlier run of this program knew; what is known now stays.
    pub(crate) fn remember_services(&self, before: ServicesOf) {
        let services = self.services.lock();
        let mut services = services.unwrap_or_else(PoisonError::into_inner);
        for (namespace, all) in before {
            services.entry(namespace).or_insert(all);
        }
    }

    fn known_services(&self, namespace: &str) -> Option<Arc<Vec<Service>>> {
        let services = self.services.lock();
        let services = services.unwrap_or_else(PoisonError::into_inner);
        services.get(namespace).cloned()
    }

    /// A static pod waits for no API (`IsStaticPod` in `pkg/kubelet/kubelet_pods.go`), and no pod
    /// does before the API has spoken for the first time.
    fn without_connection(&self, namespace: &str) -> Option<Arc<Vec<Service>>> {
        let known = self.known_services(namespace);
        let waits_not =
            || !self.inner.ever_connected() || self.view.borrow().has_static_in(namespace);
        known.or_else(|| waits_not().then(Arc::default))
    }
}

impl ControlPlane for Door {
    fn ever_connected(&self) -> bool {
        self.inner.ever_connected()
    }

    fn publish_status<'a>(
        &'a self,
        pod: &'a PodKey,
        status: &'a PodStatus,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        let target = {
            let view = self.view.borrow();
            view.is_static(pod).then(|| view.mirror_of(pod))
        };
        match target {
            None => self.inner.publish_status(pod, status),
            // Not shown yet: told again when it is.
            Some(None) => std::future::ready(Err(ControlPlaneError::Disconnected)).boxed(),
            Some(Some(mirror)) => {
                async move { self.inner.publish_status(&mirror, status).await }.boxed()
            }
        }
    }

    fn pod_gone<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        if self.view.borrow().is_static(pod) {
            return std::future::ready(Ok(())).boxed();
        }
        self.inner.pod_gone(pod)
    }

    fn publish_node<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        self.inner.publish_node(node)
    }

    fn renew_lease(&self, duration_s: u32) -> BoxFuture<'_, Result<(), ControlPlaneError>> {
        self.inner.renew_lease(duration_s)
    }

    fn record(&self, event: Event) {
        self.inner.record(event);
    }

    fn referenced<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<ReferencedData>, ControlPlaneError>> {
        self.inner.referenced(object)
    }

    fn forget(&self, object: &ObjectRef) {
        self.inner.forget(object);
    }

    fn service_account_token<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<Token, ControlPlaneError>> {
        self.inner.service_account_token(request)
    }

    fn services<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Vec<Service>>, ControlPlaneError>> {
        async move {
            match self.inner.services(namespace).await {
                Ok(all) => {
                    let services = self.services.lock();
                    let mut services = services.unwrap_or_else(PoisonError::into_inner);
                    services.insert(namespace.to_owned(), Arc::clone(&all));
                    Ok(all)
                }
                Err(ControlPlaneError::Disconnected) => self
                    .without_connection(namespace)
                    .ok_or(ControlPlaneError::Disconnected),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn forget_services(&self, namespace: &str) {
        let services = self.services.lock();
        let mut services = services.unwrap_or_else(PoisonError::into_inner);
        services.remove(namespace);
        drop(services);
        self.inner.forget_services(namespace);
    }

    fn object<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Bytes>, ControlPlaneError>> {
        self.inner.object(object)
    }

    fn create_mirror_pod<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        self.inner.create_mirror_pod(pod)
    }

    fn delete_mirror_pod<'a>(
        &'a self,
        pod: &'a PodKey,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        self.inner.delete_mirror_pod(pod)
    }
}
