//! One task that owns which node runs which pods, and tells the nodes.
//!
//! It follows pods, ConfigMaps and Secrets by list and watch. A node that attaches gets a snapshot;
//! later changes go into its bounded queue in order. A node whose queue is full is cut off: it
//! attaches again and gets a snapshot, which is what the API calls "too old, list again".

mod follow;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use swiftlet_client::api::{Api, RawEvent, ResourceName, WatchKind, resources};
use swiftlet_proto::v1::{
    ControlMessage, ObjectKey, PodRemoved, PodSnapshot, PodUpsert, ReferencedObject,
    control_message::Message,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::objects::head;
use crate::references::{self, References};
use follow::follow;

/// Requests of sessions that may wait for the feed.
const COMMANDS_MAX: usize = 256;

/// Objects that one node may be interested in: some for each of many more pods than a node runs.
const INTERESTS_MAX: usize = 4096;

/// What the feed follows.
const FOLLOWED: [ResourceName; 3] = [resources::PODS, resources::CONFIG_MAPS, resources::SECRETS];

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

/// A ConfigMap or Secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId {
    /// `ConfigMap` or `Secret`.
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Everything that can wake the feed.
enum Event {
    Command(Command),
    Listed(ResourceName, Vec<Bytes>),
    Changed(ResourceName, RawEvent),
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
    references: References,
}

#[derive(Default)]
struct Feed {
    /// Pods by node, then by (namespace, name).
    pods: HashMap<String, BTreeMap<(String, String), Placed>>,
    /// Which node holds a pod, to notice a pod that left.
    place: HashMap<(String, String), String>,
    referenced: HashMap<ObjectId, Bytes>,
    /// The nodes by what they are interested in: the sessions' interests the other way round.
    interest: HashMap<ObjectId, HashSet<String>>,
    sessions: HashMap<String, Session>,
    pods_revision: u64,
    /// What has been listed at least once. Before that, "there is none" cannot be said.
    listed: HashSet<ResourceName>,
}

impl Feed {
    async fn run(mut self, api: Arc<dyn Api>, mut commands: mpsc::Receiver<Command>) {
        let mut changes =
            stream::select_all(FOLLOWED.map(|resource| follow(api.clone(), resource)));
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
            tracing::warn!(node, ?object, "too many interests, this one is ignored");
            return;
        }
        session.interests.insert(object.clone());
        let nodes = self.interest.entry(object.clone()).or_default();
        nodes.insert(node.to_owned());
        if self.is_complete() {
            self.send_referenced(node, &object);
        }
    }

    fn remove_interest(&mut self, node: &str, object: &ObjectId) {
        if let Some(nodes) = self.interest.get_mut(object) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.interest.remove(object);
            }
        }
    }

    /// Whether everything that an answer depends on is known.
    fn is_complete(&self) -> bool {
        self.listed.len() == FOLLOWED.len()
    }

    /// A fresh list: what is not in it is gone.
    fn replace(&mut self, resource: ResourceName, items: Vec<Bytes>) {
        let is_first = self.listed.insert(resource);
        if resource == resources::PODS {
            self.replace_pods(items);
        } else {
            self.replace_referenced(kind_of(resource), items);
        }
        if !self.is_complete() {
            return;
        }
        // Pods decide who may see what; and the last first list answers what was asked before.
        let all = is_first || resource == resources::PODS;
        let objects = self.interest.keys();
        let wanted: Vec<ObjectId> = objects
            .filter(|object| all || object.kind == kind_of(resource))
            .cloned()
            .collect();
        for object in wanted {
            self.tell_interested(&object);
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

    fn replace_referenced(&mut self, kind: &'static str, items: Vec<Bytes>) {
        self.referenced.retain(|object, _| object.kind != kind);
        for object in items {
            if let Some(id) = object_id(kind, &object) {
                self.referenced.insert(id, object);
            }
        }
    }

    fn change(&mut self, resource: ResourceName, event: RawEvent) {
        if event.kind == WatchKind::Bookmark {
            return;
        }
        if resource == resources::PODS {
            self.pods_revision = event.resource_version;
            self.change_pod(event);
            return;
        }
        let kind = kind_of(resource);
        let Some(id) = object_id(kind, &event.object) else {
            return;
        };
        match event.kind {
            WatchKind::Deleted => self.referenced.remove(&id),
            _ => self.referenced.insert(id.clone(), event.object),
        };
        if self.is_complete() {
            self.tell_interested(&id);
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
        self.place.insert(id.clone(), node.clone());
        let references = references::of(&pod);
        let placed = Placed {
            json: pod,
            references,
        };
        let pods = self.pods.entry(node.clone()).or_default();
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
            self.send_referenced(&node, object);
        }
    }

    /// Sends the object's present state, if a pod of that node names it: a node may not read the
    /// secrets of pods that run elsewhere.
    fn send_referenced(&mut self, node: &str, object: &ObjectId) {
        let first = (object.namespace.clone(), String::new());
        let allowed = self.pods.get(node).is_some_and(|pods| {
            pods.range(first..)
                .take_while(|((namespace, _), _)| *namespace == object.namespace)
                .any(|(_, pod)| pod.references.contains(object.kind, &object.name))
        });
        let object_json = self.referenced.get(object).filter(|_| allowed).cloned();
        let message = ReferencedObject {
            kind: object.kind.to_owned(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            object_json,
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

fn kind_of(resource: ResourceName) -> &'static str {
    if resource == resources::SECRETS {
        "Secret"
    } else {
        "ConfigMap"
    }
}

fn object_id(kind: &'static str, object: &[u8]) -> Option<ObjectId> {
    let head = head(object)?;
    Some(ObjectId {
        kind,
        namespace: head.metadata.namespace.to_string(),
        name: head.metadata.name.to_string(),
    })
}

fn now_us() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
