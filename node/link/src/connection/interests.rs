//! What the control plane has said of the objects and Services that pods of this node need.
//!
//! ```text
//!  ask ──▶ Waiting ──answer──▶ Known ──change──▶ Known …   until forgotten
//!                               ▲                 │ nobody needs it
//!                               └──────ask─────── Lingers ──LINGER, or it is gone──▶ forgotten
//! ```
//! The first question starts the interest; later ones are answered from here at once. After a
//! reconnect all subjects are said again, and what is known stays in use meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Service;
use swiftlet_model::control_plane::{ControlPlaneError, ObjectRef, RefKind};
use swiftlet_proto::v1::{Interest, ReferencedObject, ServiceList, node_message};
use tokio::time::Instant;

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

impl Ask {
    fn subject(&self) -> Subject {
        match self {
            Self::Object(object, _) => Subject::Object(object.clone()),
            Self::Services(namespace, _) => Subject::Services(namespace.clone()),
        }
    }
}

/// The answer to a question, if there is one already.
enum Answer<T> {
    Waiting {
        /// What was known when it was asked for again.
        before: Option<T>,
        askers: Vec<Done<T>>,
    },
    Known(T),
}

impl<T: Clone> Answer<T> {
    fn none_yet() -> Self {
        Self::Waiting {
            before: None,
            askers: Vec::new(),
        }
    }

    /// The newest answer that has come.
    fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Waiting { before, .. } => before.as_ref(),
        }
    }

    /// What is known is asked for once more; those who ask now wait for it.
    fn doubt(&mut self) {
        if let Self::Known(before) = self {
            let before = Some(before.clone());
            let askers = Vec::new();
            *self = Self::Waiting { before, askers };
        }
    }

    fn refused(self, why: &str) {
        if let Self::Waiting { askers, .. } = self {
            for done in askers {
                let _ = done.send(Err(ControlPlaneError::Refused(why.to_owned())));
            }
        }
    }

    /// Takes the newest answer; says the one before, if there was one.
    fn set(&mut self, value: &T) -> Option<T> {
        match std::mem::replace(self, Self::Known(value.clone())) {
            Self::Known(before) => Some(before),
            Self::Waiting { before, askers } => {
                for done in askers {
                    let _ = done.send(Ok(value.clone()));
                }
                before
            }
        }
    }

    fn ask(&mut self, done: Done<T>) {
        match self {
            Self::Known(value) => drop(done.send(Ok(value.clone()))),
            Self::Waiting { askers, .. } => askers.push(done),
        }
    }

    fn disconnected(&mut self) {
        if let Self::Waiting { askers, .. } = self {
            for done in askers.drain(..) {
                let _ = done.send(Err(ControlPlaneError::Disconnected));
            }
        }
    }
}

/// How long what nobody needs any more is kept up to date: a pod that follows another one, as after
/// each change of a Deployment, names the same things and starts without asking for them.
pub(super) const LINGER: Duration = Duration::from_secs(30);

/// Subjects that linger: a part of what the control plane takes from one node.
const LINGERING_MAX: usize = 1024;

/// All subjects. There are no more than the pods of the node name; the sync loop ends the interest
/// when no pod names a subject any more.
#[derive(Default)]
pub(super) struct Interests {
    known: HashMap<Subject, Known>,
    /// When those are forgotten that nobody needs; the time of the first one is kept apart.
    lingering: HashMap<Subject, Instant>,
    next_end: Option<Instant>,
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
        let subject = ask.subject();
        self.lingering.remove(&subject);
        let mut is_said = self.known.contains_key(&subject);
        if let Some(Known::Object(answer @ Answer::Known(None))) = self.known.get_mut(&subject) {
            // It may have been hidden from the node while none of its pods named it, and that ends
            // without a word. The control plane answers an interest that it has already.
            answer.doubt();
            is_said = false;
        }
        let known = self
            .known
            .entry(subject.clone())
            .or_insert_with(|| match &ask {
                Ask::Object(..) => Known::Object(Answer::none_yet()),
                Ask::Services(..) => Known::Services(Answer::none_yet()),
            });
        match (known, ask) {
            (Known::Object(answer), Ask::Object(_, done)) => answer.ask(done),
            (Known::Services(answer), Ask::Services(_, done)) => answer.ask(done),
            // A subject decides its kind of answer.
            _ => return None,
        }
        (!is_said).then_some(subject)
    }

    /// Answers from what is known, while there is no connection.
    pub(super) fn answer_known(&mut self, ask: Ask) {
        self.lingering.remove(&ask.subject());
        match ask {
            Ask::Object(object, done) => {
                let known = match self.known.get(&Subject::Object(object)) {
                    Some(Known::Object(answer)) => answer.known().cloned(),
                    _ => None,
                };
                let _ = done.send(known.ok_or(ControlPlaneError::Disconnected));
            }
            Ask::Services(namespace, done) => {
                let known = match self.known.get(&Subject::Services(namespace)) {
                    Some(Known::Services(answer)) => answer.known().cloned(),
                    _ => None,
                };
                let _ = done.send(known.ok_or(ControlPlaneError::Disconnected));
            }
        }
    }

    /// Nobody needs the subject any more. If it lingers that is all; otherwise its interest must be
    /// ended. What is not there does not linger: the next pod that names it must be told whether
    /// that is still so.
    pub(super) fn forget(&mut self, subject: &Subject, now: Instant) -> bool {
        let is_there = match self.known.get(subject) {
            Some(Known::Object(answer)) => matches!(answer, Answer::Known(Some(_))),
            Some(Known::Services(answer)) => matches!(answer, Answer::Known(_)),
            None => false,
        };
        if !is_there || self.lingering.len() >= LINGERING_MAX {
            self.end(subject);
            return true;
        }
        let end = now + LINGER;
        self.lingering.insert(subject.clone(), end);
        self.next_end = Some(self.next_end.map_or(end, |before| before.min(end)));
        false
    }

    fn end(&mut self, subject: &Subject) {
        self.known.remove(subject);
        self.lingering.remove(subject);
    }

    /// When [`Self::ended`] has something to say, at the earliest.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.next_end
    }

    /// Forgets what has lingered long enough; these interests must be ended.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<Subject> {
        let all = self.lingering.iter().filter(|(_, end)| **end <= now);
        let all: Vec<Subject> = all.map(|(subject, _)| subject.clone()).collect();
        for subject in &all {
            self.end(subject);
        }
        self.next_end = self.lingering.values().min().copied();
        all
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
        if !object.refused_because.is_empty() {
            self.refused(object);
            return None;
        }
        let kind = RefKind::of(&object.kind)?;
        // A copy, so that a small object does not keep a large network buffer.
        let json = object.object_json.as_deref().map(Bytes::copy_from_slice);
        let name = ObjectRef {
            kind,
            namespace: object.namespace,
            name: object.name,
        };
        let subject = Subject::Object(name.clone());
        if let (None, Some(end)) = (&json, self.lingering.get_mut(&subject)) {
            // It is gone, or the node may not see it while none of its pods names it: the next pod
            // must ask anew. The interest is ended with the next look.
            *end = Instant::now();
            self.next_end = Some(*end);
            self.known.remove(&subject);
            return None;
        }
        // An answer to an interest that was given up meanwhile has no place.
        let known = self.known.get_mut(&subject)?;
        let Known::Object(answer) = known else {
            return None;
        };
        let before = answer.set(&json)?;
        (!is_same(kind, before.as_deref(), json.as_deref())).then_some(name)
    }

    /// The control plane keeps no such interest: who waits is told why, and the next question says
    /// it anew.
    fn refused(&mut self, object: ReferencedObject) {
        let subject = match RefKind::of(&object.kind) {
            Some(kind) => Subject::Object(ObjectRef {
                kind,
                namespace: object.namespace,
                name: object.name,
            }),
            None => Subject::Services(object.namespace),
        };
        self.lingering.remove(&subject);
        match self.known.remove(&subject) {
            Some(Known::Object(answer)) => answer.refused(&object.refused_because),
            Some(Known::Services(answer)) => answer.refused(&object.refused_because),
            None => (),
        }
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
mod tests;
