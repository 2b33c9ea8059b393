//! A control plane that stores statuses and remembers what it was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus, Service};
use swiftlet_model::control_plane::{
    ControlPlane, ControlPlaneError, ObjectRef, ReferencedData, Token, TokenRequest,
};
use swiftlet_model::ids::{PodKey, PodUid};

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Every status that was stored, in order.
    pub(crate) statuses: Vec<(PodUid, PodStatus)>,
    pub(crate) gone: Vec<PodUid>,
    pub(crate) events: Vec<Event>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) leases: usize,
    pub(crate) referenced: BTreeMap<ObjectRef, ReferencedData>,
    /// Objects whose data was asked for, in order.
    pub(crate) asked: Vec<ObjectRef>,
    pub(crate) connected: bool,
    /// It was connected at any time since the kubelet started.
    pub(crate) reached: bool,
    /// Services by namespace.
    pub(crate) services: BTreeMap<String, Vec<Service>>,
    /// Whole objects.
    pub(crate) objects: BTreeMap<ObjectRef, Bytes>,
    /// Mirror pods that were created, in order.
    pub(crate) mirrors: Vec<Pod>,
    /// Mirror pods that were removed, in order.
    pub(crate) mirrors_removed: Vec<PodKey>,
    /// It does not answer what objects hold.
    pub(crate) silent: bool,
}

/// The control plane.
#[derive(Debug)]
pub(crate) struct FakeControlPlane {
    pub(crate) told: Mutex<Told>,
}

impl FakeControlPlane {
    pub(crate) fn new() -> Self {
        Self {
            told: Mutex::new(Told {
                connected: true,
                reached: true,
                ..Told::default()
            }),
        }
    }

    pub(crate) fn status(&self, uid: &str) -> Option<PodStatus> {
        let told = self.told.lock().unwrap();
        let mut all = told.statuses.iter().rev();
        all.find(|(of, _)| of.as_str() == uid)
            .map(|(_, status)| status.clone())
    }

    pub(crate) fn is_gone(&self, uid: &str) -> bool {
        self.told
            .lock()
            .unwrap()
            .gone
            .iter()
            .any(|of| of.as_str() == uid)
    }

    pub(crate) fn reasons(&self) -> Vec<String> {
        let told = self.told.lock().unwrap();
        told.events
            .iter()
            .filter_map(|event| event.reason.clone())
            .collect()
    }

    fn tell(&self, what: impl FnOnce(&mut Told)) -> Result<(), ControlPlaneError> {
        let mut told = self.told.lock().unwrap();
        if !told.connected {
            return Err(ControlPlaneError::Disconnected);
        }
        what(&mut told);
        Ok(())
    }
}

impl ControlPlane for FakeControlPlane {
    fn ever_connected(&self) -> bool {
        let told = self.told.lock().unwrap();
        told.reached || told.connected
    }

    fn publish_status<'a>(
        &'a self,
        pod: &'a PodKey,
        status: &'a PodStatus,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.statuses.push((pod.uid.clone(), status.clone()))) }
            .boxed()
    }

    fn pod_gone<'a>(&'a self, pod: &'a PodKey) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.gone.push(pod.uid.clone())) }.boxed()
    }

    fn publish_node<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.nodes.push(node.clone())) }.boxed()
    }

    fn renew_lease(&self, _duration_s: u32) -> BoxFuture<'_, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.leases += 1) }.boxed()
    }

    fn record(&self, event: Event) {
        self.told.lock().unwrap().events.push(event);
    }

    fn referenced<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<ReferencedData>, ControlPlaneError>> {
        let mut told = self.told.lock().unwrap();
        told.asked.push(object.clone());
        if told.silent {
            return std::future::pending().boxed();
        }
        let data = told.referenced.get(object).cloned();
        async move { Ok(data) }.boxed()
    }

    fn forget(&self, _object: &ObjectRef) {}

    fn service_account_token<'a>(
        &'a self,
        _request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<Token, ControlPlaneError>> {
        let refused = ControlPlaneError::Refused("no tokens here".to_owned());
        async move { Err(refused) }.boxed()
    }

    fn services<'a>(
        &'a self,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Vec<Service>>, ControlPlaneError>> {
        // Known from before, whether there is a connection now or not.
        let is_known = self.ever_connected();
        let told = self.told.lock().unwrap();
        let is_known = is_known && (told.connected || !told.silent);
        let known = told.services.get(namespace).cloned();
        let answer = is_known.then(|| Arc::new(known.unwrap_or_default()));
        async move { answer.ok_or(ControlPlaneError::Disconnected) }.boxed()
    }

    fn forget_services(&self, _namespace: &str) {}

    fn object<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Bytes>, ControlPlaneError>> {
        let json = self.told.lock().unwrap().objects.get(object).cloned();
        async move { Ok(json) }.boxed()
    }

    fn create_mirror_pod<'a>(
        &'a self,
        pod: &'a Pod,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.mirrors.push(pod.clone())) }.boxed()
    }

    fn delete_mirror_pod<'a>(
        &'a self,
        pod: &'a PodKey,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        async move { self.tell(|told| told.mirrors_removed.push(pod.clone())) }.boxed()
    }
}
