//! Events about pods and the node, as `kubectl describe` shows them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::ControlPlane;
use swiftlet_model::events::EventKind;

use crate::events::repeats::{Counted, Repeats, Said, Subject};

mod repeats;

/// Who reports.
const COMPONENT: &str = "kubelet";

/// Builds Events and hands them to the control plane.
#[derive(Clone)]
pub(crate) struct Recorder {
    control_plane: Arc<dyn ControlPlane>,
    clock: Arc<dyn Clock>,
    node_name: String,
    /// Changed in one place, held for a look-up: workers of all pods say something.
    repeats: Arc<Mutex<Repeats>>,
    /// Makes names unique that are built in the same nanosecond. It orders nothing else.
    serial: Arc<AtomicU32>,
}

impl Recorder {
    pub(crate) fn new(
        control_plane: Arc<dyn ControlPlane>,
        clock: Arc<dyn Clock>,
        node_name: String,
    ) -> Self {
        Self {
            control_plane,
            clock,
            node_name,
            repeats: Arc::default(),
            serial: Arc::default(),
        }
    }

    /// An Event about a pod, or one of its containers.
    pub(crate) fn pod(
        &self,
        pod: &Pod,
        container: Option<&str>,
        kind: EventKind,
        reason: &str,
        message: String,
    ) {
        let meta = &pod.metadata;
        let spec = pod.spec.as_ref();
        let is_init = |name: &str| {
            spec.and_then(|spec| spec.init_containers.as_ref())
                .is_some_and(|init| init.iter().any(|one| one.name == name))
        };
        let field_path = container.map(|name| {
            let list = if is_init(name) {
                "initContainers"
            } else {
                "containers"
            };
            format!("spec.{list}{{{name}}}")
        });
        self.send(
            ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                namespace: meta.namespace.clone(),
                name: meta.name.clone(),
                uid: meta.uid.clone(),
                resource_version: meta.resource_version.clone(),
                field_path,
            },
            kind,
            reason,
            message,
        );
    }

    /// An Event about the node.
    pub(crate) fn node(&self, kind: EventKind, reason: &str, message: String) {
        self.send(
            ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(self.node_name.clone()),
                // Kubernetes puts the node's name here, not the object's uid.
                uid: Some(self.node_name.clone()),
                ..ObjectReference::default()
            },
            kind,
            reason,
            message,
        );
    }

    fn send(&self, object: ObjectReference, kind: EventKind, reason: &str, message: String) {
        let at = self.clock.timestamp();
        let Some(told) = self.count(&object, reason, &message, at) else {
            tracing::debug!(reason, message, "enough was said of this");
            return;
        };
        let event = Event {
            metadata: ObjectMeta {
                name: Some(told.name),
                namespace: Some(
                    object
                        .namespace
                        .clone()
                        .unwrap_or_else(|| "default".to_owned()),
                ),
                ..ObjectMeta::default()
            },
            involved_object: object,
            type_: Some(kind.as_str().to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(message),
            count: Some(told.count),
            first_timestamp: Some(Time(told.first)),
            last_timestamp: Some(Time(at)),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node_name.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.node_name.clone()),
            ..Event::default()
        };
        self.control_plane.record(event);
    }

    fn count(
        &self,
        object: &ObjectReference,
        reason: &str,
        message: &str,
        at: Timestamp,
    ) -> Option<Counted> {
        let name = object.name.clone().unwrap_or_default();
        let said = Said {
            subject: Subject {
                namespace: object.namespace.clone().unwrap_or_default(),
                name: name.clone(),
                uid: object.uid.clone().unwrap_or_default(),
                reason: reason.to_owned(),
            },
            field_path: object.field_path.clone(),
            message: message.to_owned(),
        };
        let fresh = || {
            // Relaxed: the number only has to differ from the others.
            let serial = self.serial.fetch_add(1, Ordering::Relaxed) & 0xff;
            let nanos = i64::try_from(at.as_nanosecond()).unwrap_or_default();
            format!("{name}.{:x}", nanos.wrapping_add(i64::from(serial)))
        };
        let mut repeats = self.repeats.lock().unwrap_or_else(PoisonError::into_inner);
        repeats.tell(said, (at, self.clock.now()), fresh)
    }
}
