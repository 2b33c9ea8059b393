//! What the control plane has said of the objects and Services that pods of this node need.
//!
//! ```text
//!  ask ──▶ Waiting ──answer──▶ Known ──change──▶ Known …   until forgotten
//! ```
//! The first question starts the interest; later ones are answered from here at once. After a
//! reconnect all subjects are said again, and what is known stays in use meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Service;
use swiftlet_model::control_plane::{ControlPlaneError, ObjectRef, RefKind};
use swiftlet_proto::v1::{Interest, ReferencedObject, ServiceList, node_message};

use super::Done;
use crate::data::data_of;

/// Something that the node wants to be told of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// One object.
    Object(ObjectRef),
    /// All Services of a namespace.
    Services(String),
}

/// A question about a subject.
pub(crate) enum Ask {
    /// The object as JSON.
    Object(ObjectRef, Done<Option<Bytes>>),
    /// The Services of a namespace.
    Services(String, Done<Arc<Vec<Service>>>),
}

/// The answer to a question, if there is one already.
enum Answer<T> {
    Waiting(Vec<Done<T>>),
    Known(T),
}

impl<T: Clone> Answer<T> {
    /// Takes the newest answer; says the one before, if there was one.
    fn set(&mut self, value: &T) -> Option<T> {
        match std::mem::replace(self, Self::Known(value.clone())) {
            Self::Known(before) => Some(before),
            Self::Waiting(waiting) => {
                for done in waiting {
                    let _ = done.send(Ok(value.clone()));
                }
                None
            }
        }
    }

    fn ask(&mut self, done: Done<T>) {
        match self {
            Self::Known(value) => drop(done.send(Ok(value.clone()))),
            Self::Waiting(waiting) => waiting.push(done),
        }
    }

    fn disconnected(&mut self) {
        if let Self::Waiting(waiting) = self {
            for done in waiting.drain(..) {
                let _ = done.send(Err(ControlPlaneError::Disconnected));
            }
        }
    }
}

/// All subjects. There are no more than the pods of the node name; the sync loop ends the interest
/// when no pod names a subject any more.
#[derive(Default)]
pub(super) struct Interests {
    known: HashMap<Subject, Known>,
}

enum Known {
    Object(Answer<Option<Bytes>>),
    Services(Answer<Arc<Vec<Service>>>),
}

impl Interests {
    pub(super) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.known.keys()
    }

    /// Answers now or later; says which interest must be told to the control plane.
    pub(super) fn ask(&mut self, ask: Ask) -> Option<Subject> {
        let subject = match &ask {
            Ask::Object(object, _) => Subject::Object(object.clone()),
            Ask::Services(namespace, _) => Subject::Services(namespace.clone()),
        };
        let is_new = !self.known.contains_key(&subject);
        let known = self
            .known
            .entry(subject.clone())
            .or_insert_with(|| match &ask {
                Ask::Object(..) => Known::Object(Answer::Waiting(Vec::new())),
                Ask::Services(..) => Known::Services(Answer::Waiting(Vec::new())),
            });
        match (known, ask) {
            (Known::Object(answer), Ask::Object(_, done)) => answer.ask(done),
            (Known::Services(answer), Ask::Services(_, done)) => answer.ask(done),
            // A subject decides its kind of answer.
            _ => return None,
        }
        is_new.then_some(subject)
    }

    /// Answers from what is known, while there is no connection.
    pub(super) fn answer_known(&mut self, ask: Ask) {
        match ask {
            Ask::Object(object, done) => {
                let known = self.known.get(&Subject::Object(object));
                let _ = done.send(match known {
                    Some(Known::Object(Answer::Known(value))) => Ok(value.clone()),
                    _ => Err(ControlPlaneError::Disconnected),
                });
            }
            Ask::Services(namespace, done) => {
                let known = self.known.get(&Subject::Services(namespace));
                let _ = done.send(match known {
                    Some(Known::Services(Answer::Known(value))) => Ok(value.clone()),
                    _ => Err(ControlPlaneError::Disconnected),
                });
            }
        }
    }

    pub(super) fn forget(&mut self, subject: &Subject) {
        self.known.remove(subject);
    }

    /// Nobody waits for a connection that is gone. The interests stay: the next connection asks.
    pub(super) fn disconnected(&mut self) {
        for known in self.known.values_mut() {
            match known {
                Known::Object(answer) => answer.disconnected(),
                Known::Services(answer) => answer.disconnected(),
            }
        }
    }

    /// Keeps an object; answers its name if what pods see of it changed after the first time.
    pub(super) fn object(&mut self, object: ReferencedObject) -> Option<ObjectRef> {
        let kind = RefKind::of(&object.kind)?;
        // A copy, so that a small object does not keep a large network buffer.
        let json = object.object_json.as_deref().map(Bytes::copy_from_slice);
        let name = ObjectRef {
            kind,
            namespace: object.namespace,
            name: object.name,
        };
        // An answer to an interest that was given up meanwhile has no place.
        let known = self.known.get_mut(&Subject::Object(name.clone()))?;
        let Known::Object(answer) = known else {
            return None;
        };
        let before = answer.set(&json)?;
        (!is_same(kind, before.as_deref(), json.as_deref())).then_some(name)
    }

    /// Keeps the Services of a namespace. Containers read them at their start alone: no pod needs
    /// to hear of a change.
    pub(super) fn services(&mut self, list: ServiceList) {
        let services = list.services_json.iter().filter_map(|json| {
            let service = serde_json::from_slice::<Service>(json);
            service
                .inspect_err(|error| tracing::error!(%error, "a Service cannot be decoded"))
                .ok()
        });
        let services = Arc::new(services.collect::<Vec<_>>());
        let subject = Subject::Services(list.namespace);
        if let Some(Known::Services(answer)) = self.known.get_mut(&subject) {
            answer.set(&services);
        }
    }
}

/// Whether pods see the same: of ConfigMaps and Secrets their data alone.
fn is_same(kind: RefKind, before: Option<&[u8]>, after: Option<&[u8]>) -> bool {
    if before == after {
        return true;
    }
    match (kind, before, after) {
        (RefKind::ConfigMap | RefKind::Secret, Some(before), Some(after)) => {
            data_of(kind, before) == data_of(kind, after)
        }
        _ => false,
    }
}

/// The message that starts or ends an interest.
pub(super) fn interest(subject: &Subject, wanted: bool) -> node_message::Message {
    let (kind, namespace, name) = match subject {
        Subject::Object(object) => (object.kind.as_str(), &object.namespace, &*object.name),
        Subject::Services(namespace) => ("Service", namespace, ""),
    };
    node_message::Message::Interest(Interest {
        kind: kind.to_owned(),
        namespace: namespace.clone(),
        name: name.to_owned(),
        wanted,
    })
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    fn settings() -> ObjectRef {
        ObjectRef {
            kind: RefKind::ConfigMap,
            namespace: "default".into(),
            name: "settings".into(),
        }
    }

    fn say(json: Option<&str>) -> ReferencedObject {
        ReferencedObject {
            kind: "ConfigMap".into(),
            namespace: "default".into(),
            name: "settings".into(),
            object_json: json.map(|json| json.as_bytes().to_vec().into()),
        }
    }

    #[test]
    fn a_change_of_the_data_is_told_only_after_the_first_answer() {
        let mut interests = Interests::default();
        let (done, answer) = oneshot::channel();
        let asked = interests.ask(Ask::Object(settings(), done));
        assert_eq!(asked, Some(Subject::Object(settings())));
        assert_eq!(interests.object(say(Some(r#"{"data":{"a":"1"}}"#))), None);
        let first = answer.now_or_never().expect("answered").expect("sent");
        assert!(first.expect("no error").is_some());
        let with_version = r#"{"metadata":{"resourceVersion":"7"},"data":{"a":"1"}}"#;
        assert_eq!(interests.object(say(Some(with_version))), None);
        let changed = interests.object(say(Some(r#"{"data":{"a":"2"}}"#)));
        assert_eq!(changed, Some(settings()));
        assert_eq!(interests.object(say(None)), Some(settings()));
    }

    #[test]
    fn the_interest_in_a_subject_is_said_once() {
        let mut interests = Interests::default();
        let mut asked = Vec::new();
        let mut answers = Vec::new();
        for _ in 0..3 {
            let (done, answer) = oneshot::channel();
            asked.push(
                interests
                    .ask(Ask::Services("default".into(), done))
                    .is_some(),
            );
            answers.push(answer);
        }
        assert_eq!(asked, [true, false, false]);
        interests.services(ServiceList {
            namespace: "default".into(),
            services_json: vec![r#"{"metadata":{"name":"web"}}"#.into(), "no JSON".into()],
        });
        for answer in answers {
            let services = answer.now_or_never().expect("answered").expect("sent");
            assert_eq!(services.expect("no error").len(), 1);
        }
        interests.forget(&Subject::Services("default".into()));
        assert_eq!(interests.subjects().count(), 0);
    }

    #[test]
    fn what_is_known_is_answered_without_a_connection_and_the_rest_fails_at_once() {
        let mut interests = Interests::default();
        let (done, _first) = oneshot::channel();
        interests.ask(Ask::Object(settings(), done));
        let (done, waiting) = oneshot::channel();
        interests.ask(Ask::Services("default".into(), done));
        interests.object(say(None));
        interests.disconnected();
        let lost = waiting.now_or_never().expect("answered").expect("sent");
        assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
        let (done, answer) = oneshot::channel();
        interests.answer_known(Ask::Object(settings(), done));
        let known = answer.now_or_never().expect("answered").expect("sent");
        assert!(known.expect("no error").is_none());
        let (done, answer) = oneshot::channel();
        interests.answer_known(Ask::Services("other".into(), done));
        assert!(
            answer
                .now_or_never()
                .expect("answered")
                .expect("sent")
                .is_err()
        );
        // The next connection asks for both again.
        assert_eq!(interests.subjects().count(), 2);
    }

    #[test]
    fn other_kinds_than_config_maps_and_secrets_change_with_their_whole_object() {
        let before = br#"{"status":{"phase":"Pending"}}"#.as_slice();
        let after = br#"{"status":{"phase":"Bound"}}"#.as_slice();
        let kind = RefKind::PersistentVolumeClaim;
        assert!(!is_same(kind, Some(before), Some(after)));
        assert!(is_same(RefKind::ConfigMap, Some(before), Some(after)));
    }
}
