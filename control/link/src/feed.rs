//! One task that owns which node runs which pods, and tells the nodes.
//!
//! It follows pods, ConfigMaps and Secrets by list and watch. A node that attaches gets a snapshot;
//! later changes go into its bounded queue in order. A node whose queue is full is cut off: it
//! attaches again and gets a snapshot, which is what the API calls "too old, list again".

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use swiftlet_client::api::{
    Api, ApiError, RawEvent, ResourceName, Selection, WatchKind, resources,
};
use swiftlet_proto::v1::{
    ControlMessage, ObjectKey, PodRemoved, PodSnapshot, PodUpsert, ReferencedObject,
    control_message::Message,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::objects::head;

/// Requests of sessions that may wait for the feed.
const COMMANDS_MAX: usize = 256;

/// Pause before a list is repeated: a watch that ends at once must not become a busy loop.
const RELIST_PAUSE: Duration = Duration::from_millis(200);

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
}

#[derive(Default)]
struct Feed {
    /// Pods by node, then by (namespace, name).
    pods: HashMap<String, BTreeMap<(String, String), Bytes>>,
    /// Which node holds a pod, to notice a pod that left.
    place: HashMap<(String, String), String>,
    referenced: HashMap<ObjectId, Bytes>,
    interest: HashMap<ObjectId, HashSet<String>>,
    sessions: HashMap<String, Session>,
    pods_revision: u64,
    listed: bool,
}

impl Feed {
    async fn run(mut self, api: Arc<dyn Api>, mut commands: mpsc::Receiver<Command>) {
        let mut changes = stream::select_all([
            follow(api.clone(), resources::PODS),
            follow(api.clone(), resources::CONFIG_MAPS),
            follow(api, resources::SECRETS),
        ]);
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
            } => {
                self.sessions.insert(
                    node.clone(),
                    Session {
                        id: session,
                        sender,
                    },
                );
                if self.listed {
                    self.send_snapshot(&node);
                }
            }
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
            } => {
                self.interest
                    .entry(object.clone())
                    .or_default()
                    .insert(node.clone());
                self.send_referenced(&node, &object);
            }
            Command::Interest {
                node,
                object,
                wanted: false,
            } => {
                if let Some(nodes) = self.interest.get_mut(&object) {
                    nodes.remove(&node);
                    if nodes.is_empty() {
                        self.interest.remove(&object);
                    }
                }
            }
        }
    }

    /// A fresh list: what is not in it is gone.
    fn replace(&mut self, resource: ResourceName, items: Vec<Bytes>) {
        if resource == resources::PODS {
            self.pods.clear();
            self.place.clear();
            for pod in items {
                self.place_pod(pod);
            }
            self.listed = true;
            for node in self.sessions.keys().cloned().collect::<Vec<_>>() {
                self.send_snapshot(&node);
            }
            return;
        }
        let kind = kind_of(resource);
        self.referenced.retain(|object, _| object.kind != kind);
        for object in items {
            if let Some(id) = object_id(kind, &object) {
                self.referenced.insert(id, object);
            }
        }
        let wanted: Vec<ObjectId> = self
            .interest
            .keys()
            .filter(|object| object.kind == kind)
            .cloned()
            .collect();
        for object in wanted {
            self.tell_interested(&object);
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
        self.tell_interested(&id);
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
        self.pods.entry(node.clone()).or_default().insert(id, pod);
        Some(node)
    }

    fn send_snapshot(&mut self, node: &str) {
        let pods_json = self
            .pods
            .get(node)
            .map(|pods| pods.values().cloned().collect());
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
        let allowed = self
            .pods
            .get(node)
            .is_some_and(|pods| names_object(pods, object));
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
        self.sessions.remove(node);
        self.interest.retain(|_, nodes| {
            nodes.remove(node);
            !nodes.is_empty()
        });
    }
}

/// Whether some pod in the object's namespace bears its name as a JSON string.
fn names_object(pods: &BTreeMap<(String, String), Bytes>, object: &ObjectId) -> bool {
    let needle = format!("\"{}\"", object.name);
    pods.iter().any(|((namespace, _), pod)| {
        *namespace == object.namespace
            && pod
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
    })
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

/// Lists and watches a resource for ever: a list, then its changes, and a list again after any
/// error.
fn follow(api: Arc<dyn Api>, resource: ResourceName) -> BoxStream<'static, Event> {
    let lists = stream::unfold((api, false), move |(api, again)| async move {
        let selection = Selection::all(resource);
        if again {
            tokio::time::sleep(RELIST_PAUSE).await;
        }
        loop {
            match list_and_watch(api.as_ref(), &selection).await {
                Ok(events) => return Some((events, (api, true))),
                Err(error) => {
                    tracing::warn!(resource = resource.plural, %error, "list failed, repeated");
                    tokio::time::sleep(RELIST_PAUSE).await;
                }
            }
        }
    });
    lists.flatten().boxed()
}

async fn list_and_watch(
    api: &dyn Api,
    selection: &Selection,
) -> Result<BoxStream<'static, Event>, ApiError> {
    let resource = selection.resource;
    let list = api.list(selection).await?;
    let watch = api.watch(selection, list.resource_version)?;
    let changes = watch
        .take_while(|event| std::future::ready(event.is_ok()))
        .filter_map(move |event| std::future::ready(event.ok()))
        .map(move |event| Event::Changed(resource, event));
    Ok(stream::iter([Event::Listed(resource, list.items)])
        .chain(changes)
        .boxed())
}
