use serde_json::{Value, json};
use swiftlet_client::api::{
    ApiError, DeleteParameters, ObjectName, PatchKind, RawList, RawWatch, Selection,
};

use super::*;

type Received = mpsc::Receiver<Result<ControlMessage, tonic::Status>>;

fn encoded(object: &Value) -> Bytes {
    object.to_string().into()
}

fn secret(name: &str) -> Bytes {
    encoded(&json!({"metadata": {"name": name, "namespace": "default"}}))
}

fn pod(secret: &str) -> Bytes {
    encoded(&json!({
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "private"}},
        "spec": {"nodeName": "worker", "imagePullSecrets": [{"name": secret}]},
    }))
}

fn attach(feed: &mut Feed, session: u64) -> Received {
    let (sender, received) = mpsc::channel(2 * INTERESTS_MAX);
    feed.command(Command::Attach {
        node: "worker".into(),
        session,
        sender,
    });
    received
}

fn want(feed: &mut Feed, name: &str) {
    let object = ObjectId {
        kind: "Secret",
        namespace: "default".into(),
        name: name.into(),
    };
    feed.command(Command::Interest {
        node: "worker".into(),
        object,
        wanted: true,
    });
}

/// The answers about objects so far: name, and whether the object came along.
fn answers(received: &mut Received) -> Vec<(String, bool)> {
    std::iter::from_fn(|| received.try_recv().ok())
        .filter_map(|message| match message.ok()?.message? {
            Message::ReferencedObject(object) => Some((object.name, object.object_json.is_some())),
            _ => None,
        })
        .collect()
}

#[test]
fn an_interest_is_answered_when_its_lists_have_come_and_again_with_each_list_of_pods() {
    let mut feed = Feed::default();
    let mut received = attach(&mut feed, 1);
    want(&mut feed, "pull");
    feed.replace(resources::SECRETS, vec![secret("pull")]);
    assert_eq!(answers(&mut received), []);
    feed.replace(resources::PODS, vec![pod("pull")]);
    assert_eq!(answers(&mut received), [("pull".into(), true)]);
    feed.replace(resources::PODS, Vec::new());
    assert_eq!(answers(&mut received), [("pull".into(), false)]);
}

#[test]
fn a_node_sees_only_what_its_pods_refer_to() {
    let mut feed = Feed::default();
    feed.replace(resources::PODS, vec![pod("pull")]);
    feed.replace(resources::CONFIG_MAPS, Vec::new());
    let secrets = ["pull", "private"].map(secret);
    feed.replace(resources::SECRETS, secrets.to_vec());
    let mut received = attach(&mut feed, 1);
    want(&mut feed, "pull");
    want(&mut feed, "private");
    assert_eq!(
        answers(&mut received),
        [("pull".into(), true), ("private".into(), false)]
    );
}

fn change(feed: &mut Feed, resource: ResourceName, kind: WatchKind, object: Bytes) {
    let event = RawEvent {
        kind,
        object,
        resource_version: 9,
    };
    feed.change(resource, event);
}

#[test]
fn an_object_that_was_not_shown_is_shown_to_the_next_pod_that_names_it() {
    let mut feed = Feed::default();
    feed.replace(resources::PODS, vec![pod("pull")]);
    feed.replace(resources::SECRETS, vec![secret("pull")]);
    let mut received = attach(&mut feed, 1);
    want(&mut feed, "pull");
    assert_eq!(answers(&mut received), [("pull".into(), true)]);
    // The pod and its secret are replaced, and the secret is faster.
    change(&mut feed, resources::PODS, WatchKind::Deleted, pod("pull"));
    change(
        &mut feed,
        resources::SECRETS,
        WatchKind::Deleted,
        secret("pull"),
    );
    change(
        &mut feed,
        resources::SECRETS,
        WatchKind::Added,
        secret("pull"),
    );
    let hidden = [("pull".into(), false), ("pull".into(), false)];
    assert_eq!(answers(&mut received), hidden);
    change(&mut feed, resources::PODS, WatchKind::Added, pod("pull"));
    // The interest is the old one, said once more.
    want(&mut feed, "pull");
    assert_eq!(answers(&mut received), [("pull".into(), true)]);
}

#[test]
fn a_changed_spec_changes_what_a_pod_may_show_to_its_node_and_a_status_does_not() {
    let at = |generation: i64, secret: &str| {
        let mut pod: Value = serde_json::from_slice(&pod(secret)).unwrap();
        pod["metadata"]["generation"] = generation.into();
        pod["metadata"]["uid"] = "u".into();
        encoded(&pod)
    };
    let mut feed = Feed::default();
    let id = ("default".to_owned(), "web".to_owned());
    let mut names = |pod: Bytes, name: &str| {
        change(&mut feed, resources::PODS, WatchKind::Modified, pod);
        feed.pods["worker"][&id].references.contains("Secret", name)
    };
    assert!(names(at(1, "pull"), "pull"));
    // The spec of a pod does not change within a generation: it is not read again.
    assert!(names(at(1, "unread"), "pull"));
    assert!(names(at(2, "newer"), "newer"));
    assert!(names(at(0, "uncounted"), "uncounted"));
}

#[test]
fn a_node_has_a_bounded_number_of_interests_and_they_end_with_its_session() {
    let mut feed = Feed::default();
    feed.replace(resources::PODS, Vec::new());
    for (_, resource) in KINDS {
        feed.replace(resource, Vec::new());
    }
    let mut received = attach(&mut feed, 1);
    for number in 0..=INTERESTS_MAX {
        want(&mut feed, &format!("s{number}"));
    }
    let messages = std::iter::from_fn(|| received.try_recv().ok());
    let mut objects: Vec<ReferencedObject> = messages
        .filter_map(|message| match message.ok()?.message? {
            Message::ReferencedObject(object) => Some(object),
            _ => None,
        })
        .collect();
    assert_eq!(objects.len(), INTERESTS_MAX + 1, "each one is answered");
    let last = objects.pop().unwrap();
    assert_eq!(last.name, format!("s{INTERESTS_MAX}"));
    assert!(!last.refused_because.is_empty());
    assert!(
        objects
            .iter()
            .all(|object| object.refused_because.is_empty())
    );
    assert_eq!(feed.interest.len(), INTERESTS_MAX);
    let _received = attach(&mut feed, 2);
    assert!(feed.interest.is_empty());
}

fn want_kind(feed: &mut Feed, kind: &'static str, namespace: &str, name: &str) {
    let object = ObjectId {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    };
    feed.command(Command::Interest {
        node: "worker".into(),
        object,
        wanted: true,
    });
}

fn service_lists(received: &mut Received) -> Vec<(String, usize)> {
    std::iter::from_fn(|| received.try_recv().ok())
        .filter_map(|message| match message.ok()?.message? {
            Message::ServiceList(list) => Some((list.namespace, list.services_json.len())),
            _ => None,
        })
        .collect()
}

#[test]
fn the_services_of_a_namespace_come_as_a_whole_and_again_with_each_change() {
    let mut feed = Feed::default();
    feed.replace(resources::PODS, Vec::new());
    let mut received = attach(&mut feed, 1);
    want_kind(&mut feed, SERVICE, "default", "");
    assert_eq!(service_lists(&mut received), []);
    let service =
        |name, namespace| encoded(&json!({"metadata": {"name": name, "namespace": namespace}}));
    let all = vec![service("web", "default"), service("dns", "kube-system")];
    feed.replace(resources::SERVICES, all);
    assert_eq!(service_lists(&mut received), [("default".into(), 1)]);
    let mut change = |kind, object| {
        let event = RawEvent {
            kind,
            object,
            resource_version: 9,
        };
        feed.change(resources::SERVICES, event);
    };
    change(WatchKind::Added, service("db", "default"));
    change(WatchKind::Added, service("other", "kube-system"));
    change(WatchKind::Deleted, service("web", "default"));
    let lists = service_lists(&mut received);
    assert_eq!(lists, [("default".into(), 2), ("default".into(), 1)]);
}

#[test]
fn a_volume_is_seen_through_the_claim_that_a_pod_of_the_node_names() {
    let mut feed = Feed::default();
    let pod = encoded(&json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"nodeName": "worker", "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ]},
    }));
    feed.replace(resources::PODS, vec![pod]);
    let volumes = ["pv-1", "pv-2"].map(|name| encoded(&json!({"metadata": {"name": name}})));
    feed.replace(resources::PERSISTENT_VOLUMES, volumes.to_vec());
    feed.replace(resources::PERSISTENT_VOLUME_CLAIMS, Vec::new());
    let mut received = attach(&mut feed, 1);
    want_kind(&mut feed, VOLUME, "", "pv-1");
    want_kind(&mut feed, VOLUME, "", "pv-2");
    let both = [("pv-1".into(), false), ("pv-2".into(), false)];
    assert_eq!(answers(&mut received), both);
    let claim = RawEvent {
        kind: WatchKind::Modified,
        object: encoded(&json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"volumeName": "pv-1"},
        })),
        resource_version: 9,
    };
    feed.change(resources::PERSISTENT_VOLUME_CLAIMS, claim);
    assert_eq!(answers(&mut received), [("pv-1".into(), true)]);
}

/// An API that serves no resource at all.
struct Unserved;

impl Unserved {
    fn answer<T: Send + 'static>() -> futures::future::BoxFuture<'static, Result<T, ApiError>> {
        let error = swiftlet_client::fake::error(404, "NotFound", "no such path");
        Box::pin(std::future::ready(Err(error)))
    }
}

type Answer<'a, T> = futures::future::BoxFuture<'a, Result<T, ApiError>>;

impl Api for Unserved {
    fn get<'a>(&'a self, _: &'a ObjectName) -> Answer<'a, Bytes> {
        Self::answer()
    }

    fn list<'a>(&'a self, _: &'a Selection) -> Answer<'a, RawList> {
        Self::answer()
    }

    fn watch(&self, _: &Selection, _: u64) -> Result<RawWatch, ApiError> {
        Ok(stream::empty().boxed())
    }

    fn create<'a>(&'a self, _: &'a ObjectName, _: Bytes) -> Answer<'a, Bytes> {
        Self::answer()
    }

    fn update<'a>(&'a self, _: &'a ObjectName, _: Bytes) -> Answer<'a, Bytes> {
        Self::answer()
    }

    fn patch<'a>(&'a self, _: &'a ObjectName, _: PatchKind, _: Bytes) -> Answer<'a, Bytes> {
        Self::answer()
    }

    fn delete<'a>(&'a self, _: &'a ObjectName, _: DeleteParameters) -> Answer<'a, Bytes> {
        Self::answer()
    }
}

#[tokio::test]
async fn a_kind_that_the_api_does_not_serve_is_answered_as_absent_at_once() {
    let first = follow(Arc::new(Unserved), resources::RUNTIME_CLASSES)
        .next()
        .await;
    assert!(matches!(first, Some(Event::Absent(_))));
    let mut feed = Feed::default();
    feed.replace(resources::PODS, Vec::new());
    let mut received = attach(&mut feed, 1);
    want_kind(&mut feed, RUNTIME_CLASS, "", "kata");
    assert_eq!(answers(&mut received), []);
    feed.absent(resources::RUNTIME_CLASSES);
    assert_eq!(answers(&mut received), [("kata".into(), false)]);
}
