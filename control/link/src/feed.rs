//! One task that owns which node runs which pods, and tells the nodes.
//!
//! It follows pods and what pods name (ConfigMaps, Secrets, Services, RuntimeClasses, claims and
//! volumes) by list and watch; a kind that the API does not serve counts as empty. A node that
//! attaches gets a snapshot; later changes go into its bounded queue in order. A node whose queue
//! is full is cut off: it attaches again and gets a snapshot, which is what the API calls "too
//! old, list again".

mod follow;
mod known;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use swiftlet_client::api::{Api, RawEvent, ResourceName, WatchKind, resources};
use swiftlet_proto::v1::{
    ControlMessage, ObjectKey, PodRemoved, PodSnapshot, PodUpsert, ReferencedObject, ServiceList,
    control_message::Message,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::objects::head;
use crate::references::{self, References};
use follow::follow;
pub(crate) use known::known_kind;
use known::{
    CLAIM, KINDS, Known, NODE, RUNTIME_CLASS, SERVICE, VOLUME, bound_volume, kind_of, object_id,
};

/// Requests of sessions that may wait for the feed.
const COMMANDS_MAX: usize = 256;

/// Objects that one node may be interested in: some for each of many more pods than a node runs.
const INTERESTS_MAX: usize = 4096;

/// A node's outgoing queue.
pub(crate) type NodeSender = mpsc::Sender<Result<ControlMessage, tonic::Status>>;

/// What a session asks of the feed.
pub(crate) enum Command {
    /// A node's stream is open; an older one of the same node is replaced.
    Attach {
        node: String,
        session: u64,
        sender: NodeSender,
    },
    /// A stream ended.
    Detach { node: String, session: u64 },
    /// A node wants, or no longer wants, an object that its pods name.
    Interest {
        node: String,
        object: ObjectId,
        wanted: bool,
    },
}

/// An object that pods name. A Service without a name is all Services of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    /// One of [`KINDS`].
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Everything that can wake the feed.
enum Event {
    Command(Command),
    Listed(ResourceName, Vec<Bytes>),
    Changed(ResourceName, RawEvent),
    /// The API does not serve it.
    Absent(ResourceName),
    Shutdown,
}

/// Starts the feed; it ends with `shutdown`, or when every sender of commands is dropped.
pub(crate) fn start(api: Arc<dyn Api>, shutdown: CancellationToken) -> mpsc::Sender<Command> {
    let (sender, commands) = mpsc::channel(COMMANDS_MAX);
    let work = Feed::default().run(api, commands);
    tokio::spawn(shutdown.run_until_cancelled_owned(work));
    sender
}

struct Session {
    id: u64,
    sender: NodeSender,
    /// At most [`INTERESTS_MAX`].
    interests: HashSet<ObjectId>,
}

/// A pod that has a node.
struct Placed {
    json: Bytes,
    uid: String,
    /// Changes with the spec, and so with what the pod names; 0 if the API does not count.
    generation: i64,
    references: References,
}

#[derive(Default)]
struct Feed {
    /// Pods by node, then by (namespace, name).
    pods: HashMap<String, BTreeMap<(String, String), Placed>>,
    /// Which node holds a pod, to notice a pod that left.
    place: HashMap<(String, String), String>,
    known: Known,
    /// The nodes by what they are interested in: the sessions' interests the other way round.
    interest: HashMap<ObjectId, HashSet<String>>,
    sessions: HashMap<String, Session>,
    pods_revision: u64,
    /// What has been listed at least once. Before that, "there is none" cannot be said.
    listed: HashSet<ResourceName>,
}

impl Feed {
    async fn run(mut self, api: Arc<dyn Api>, mut commands: mpsc::Receiver<Command>) {
        let followed = KINDS.iter().map(|(_, resource)| *resource);
        let followed = std::iter::once(resources::PODS).chain(followed);
        let mut changes =
            stream::select_all(followed.map(|resource| follow(api.clone(), resource)));
        loop {
            // Changes first: a session that attaches then gets the newest snapshot. Commands do not
            // starve, because the watch delivers in batches and is empty between them.
            let event = tokio::select! {
                biased;
                Some(event) = changes.next() => event,
                command = commands.recv() => command.map_or(Event::Shutdown, Event::Command),
            };
            match event {
                Event::Command(command) => self.command(command),
                Event::Listed(resource, items) => self.replace(resource, items),
                Event::Changed(resource, event) => self.change(resource, event),
                Event::Absent(resource) => self.absent(resource),
                Event::Shutdown => return,
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Attach {
                node,
                session,
                sender,
            } => self.attach(node, session, sender),
            Command::Detach { node, session } => {
                if self
                    .sessions
                    .get(&node)
                    .is_some_and(|current| current.id == session)
                {
                    self.cut_off(&node);
                }
            }
            Command::Interest {
                node,
                object,
                wanted: true,
            } => self.add_interest(&node, object),
            Command::Interest {
                node,
                object,
                wanted: false,
            } => {
                if let Some(session) = self.sessions.get_mut(&node) {
                    session.interests.remove(&object);
                }
                self.remove_interest(&node, &object);
            }
        }
    }

    fn attach(&mut self, node: String, id: u64, sender: NodeSender) {
        // An older session ends with its interests; the node says them again.
        self.cut_off(&node);
        let session = Session {
            id,
            sender,
            interests: HashSet::new(),
        };
        self.sessions.insert(node.clone(), session);
        if self.listed.contains(&resources::PODS) {
            self.send_snapshot(&node);
        }
    }

    fn add_interest(&mut self, node: &str, object: ObjectId) {
        let Some(session) = self.sessions.get_mut(node) else {
            return;
        };
        if session.interests.len() >= INTERESTS_MAX && !session.interests.contains(&object) {
            tracing::warn!(node, ?object, "too many interests, this one is refused");
            self.refuse(node, object);
            return;
        }
        session.interests.insert(object.clone());
        let nodes = self.interest.entry(object.clone()).or_default();
        nodes.insert(node.to_owned());
        if self.can_answer(object.kind) {
            self.answer(node, &object);
        }
    }

    /// An interest without an answer would keep a pod of the node waiting for ever.
    fn refuse(&mut self, node: &str, object: ObjectId) {
        let message = ReferencedObject {
            kind: object.kind.to_owned(),
            namespace: object.namespace,
            name: object.name,
            object_json: None,
            refused_because: format!("a node may ask for {INTERESTS_MAX} objects at a time"),
        };
        self.send(node, Message::ReferencedObject(message));
    }

    fn remove_interest(&mut self, node: &str, object: &ObjectId) {
        if let Some(nodes) = self.interest.get_mut(object) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.interest.remove(object);
            }
        }
    }

    /// Whether everything that an answer depends on is known: the pods, which decide who may see
    /// what, the kind itself, and the claims for volumes.
    fn can_answer(&self, kind: &str) -> bool {
        let listed = |kind: &str| {
            known_kind(kind).is_some_and(|(_, resource)| self.listed.contains(&resource))
        };
        self.listed.contains(&resources::PODS) && listed(kind) && (kind != VOLUME || listed(CLAIM))
    }

    /// A fresh list: what is not in it is gone.
    fn replace(&mut self, resource: ResourceName, items: Vec<Bytes>) {
        self.listed.insert(resource);
        let kind = kind_of(resource);
        match kind {
            Some(kind) => self.known.replace(kind, items),
            None => self.replace_pods(items),
        }
        // Pods decide who may see what, and claims decide it for volumes.
        let concerns = |object: &&ObjectId| match kind {
            None => true,
            Some(kind) => object.kind == kind || (kind == CLAIM && object.kind == VOLUME),
        };
        let wanted: Vec<ObjectId> = self.interest.keys().filter(concerns).cloned().collect();
        for object in wanted {
            if self.can_answer(object.kind) {
                self.tell_interested(&object);
            }
        }
    }

    /// What is not served is empty.
    fn absent(&mut self, resource: ResourceName) {
        if !self.listed.contains(&resource) {
            self.replace(resource, Vec::new());
        }
    }

    fn replace_pods(&mut self, items: Vec<Bytes>) {
        self.pods.clear();
        self.place.clear();
        for pod in items {
            self.place_pod(pod);
        }
        for node in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.send_snapshot(&node);
        }
    }

    fn change(&mut self, resource: ResourceName, event: RawEvent) {
        if event.kind == WatchKind::Bookmark {
            return;
        }
        let Some(kind) = kind_of(resource) else {
            self.pods_revision = event.resource_version;
            self.change_pod(event);
            return;
        };
        let Some(id) = object_id(kind, &event.object) else {
            return;
        };
        let volume = (kind == CLAIM)
            .then(|| bound_volume(&event.object))
            .flatten();
        match event.kind {
            WatchKind::Deleted => self.known.remove(&id),
            _ => self.known.put(id.clone(), event.object),
        }
        let whole = ObjectId {
            name: String::new(),
            ..id.clone()
        };
        // A claim opens its volume to the node.
        let volume = volume.map(|name| ObjectId {
            kind: VOLUME,
            namespace: String::new(),
            name,
        });
        let told = if kind == SERVICE { whole } else { id };
        for object in std::iter::once(told).chain(volume) {
            if self.can_answer(object.kind) {
                self.tell_interested(&object);
            }
        }
    }

    fn change_pod(&mut self, event: RawEvent) {
        let Some(head) = head(&event.object) else {
            return;
        };
        let id = (
            head.metadata.namespace.to_string(),
            head.metadata.name.to_string(),
        );
        if event.kind == WatchKind::Deleted {
            let uid = head.metadata.uid.to_string();
            if let Some(node) = self.place.remove(&id) {
                self.pods.entry(node.clone()).or_default().remove(&id);
                let pod = Some(ObjectKey {
                    namespace: id.0,
                    name: id.1,
                    uid,
                });
                self.send(&node, Message::PodRemoved(PodRemoved { pod }));
            }
            return;
        }
        if let Some(node) = self.place_pod(event.object.clone()) {
            let sent_at_us = now_us();
            self.send(
                &node,
                Message::PodUpsert(PodUpsert {
                    pod_json: event.object,
                    sent_at_us,
                }),
            );
        }
    }

    /// Files a pod under its node; answers the node.
    fn place_pod(&mut self, pod: Bytes) -> Option<String> {
        let head = head(&pod)?;
        if head.spec.node_name.is_empty() {
            return None;
        }
        let node = head.spec.node_name.to_string();
        let id = (
            head.metadata.namespace.to_string(),
            head.metadata.name.to_string(),
        );
        let (uid, generation) = (head.metadata.uid.to_string(), head.metadata.generation);
        self.place.insert(id.clone(), node.clone());
        let pods = self.pods.entry(node.clone()).or_default();
        // Most events are statuses. They leave what the pod names as it is: no second reading.
        let known = pods
            .remove(&id)
            .filter(|known| generation != 0 && known.generation == generation && known.uid == uid);
        let references = known.map_or_else(|| references::of(&pod), |known| known.references);
        let placed = Placed {
            json: pod,
            uid,
            generation,
            references,
        };
        pods.insert(id, placed);
        Some(node)
    }

    fn send_snapshot(&mut self, node: &str) {
        let pods_json = self
            .pods
            .get(node)
            .map(|pods| pods.values().map(|pod| pod.json.clone()).collect());
        let snapshot = PodSnapshot {
            revision: self.pods_revision,
            pods_json: pods_json.unwrap_or_default(),
        };
        self.send(node, Message::PodSnapshot(snapshot));
    }

    fn tell_interested(&mut self, object: &ObjectId) {
        let nodes: Vec<String> = self
            .interest
            .get(object)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for node in nodes {
            self.answer(&node, object);
        }
    }

    /// Whether a node may see an object: a node may not read the secrets of pods that run
    /// elsewhere. RuntimeClasses are nobody's secret.
    fn may_see(&self, node: &str, object: &ObjectId) -> bool {
        if object.kind == NODE {
            return object.name == node;
        }
        let Some(pods) = self.pods.get(node) else {
            return object.kind == RUNTIME_CLASS;
        };
        match object.kind {
            RUNTIME_CLASS => true,
            VOLUME => pods.iter().any(|((namespace, _), pod)| {
                let mut claims = pod.references.claims();
                let name = Some(object.name.as_str());
                claims.any(|claim| self.known.volume_of(namespace, claim) == name)
            }),
            kind => {
                let first = (object.namespace.clone(), String::new());
                pods.range(first..)
                    .take_while(|((namespace, _), _)| *namespace == object.namespace)
                    .any(|(_, pod)| pod.references.contains(kind, &object.name))
            }
        }
    }

    /// Sends the present state of what a node is interested in.
    fn answer(&mut self, node: &str, object: &ObjectId) {
        if object.kind == SERVICE {
            let list = ServiceList {
                namespace: object.namespace.clone(),
                services_json: self.known.services(&object.namespace),
            };
            self.send(node, Message::ServiceList(list));
            return;
        }
        let allowed = self.may_see(node, object);
        let object_json = self.known.get(object).filter(|_| allowed).cloned();
        let message = ReferencedObject {
            kind: object.kind.to_owned(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            object_json,
            refused_because: String::new(),
        };
        self.send(node, Message::ReferencedObject(message));
    }

    fn send(&mut self, node: &str, message: Message) {
        let Some(session) = self.sessions.get(node) else {
            return;
        };
        if session
            .sender
            .try_send(Ok(ControlMessage {
                message: Some(message),
            }))
            .is_err()
        {
            tracing::warn!(
                node,
                "node link is too slow or gone, cut off until it attaches again"
            );
            self.cut_off(node);
        }
    }

    /// Forgets the session and its interests; its stream ends when the last sender is gone.
    fn cut_off(&mut self, node: &str) {
        let Some(session) = self.sessions.remove(node) else {
            return;
        };
        for object in &session.interests {
            self.remove_interest(node, object);
        }
    }
}

fn now_us() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
