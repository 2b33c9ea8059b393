use serde_json::{Value, json};

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
fn an_interest_is_answered_when_all_lists_have_come_and_again_with_each_list_of_pods() {
    let mut feed = Feed::default();
    let mut received = attach(&mut feed, 1);
    want(&mut feed, "pull");
    feed.replace(resources::SECRETS, vec![secret("pull")]);
    feed.replace(resources::PODS, vec![pod("pull")]);
    assert_eq!(answers(&mut received), []);
    feed.replace(resources::CONFIG_MAPS, Vec::new());
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

#[test]
fn a_node_has_a_bounded_number_of_interests_and_they_end_with_its_session() {
    let mut feed = Feed::default();
    for resource in FOLLOWED {
        feed.replace(resource, Vec::new());
    }
    let mut received = attach(&mut feed, 1);
    for number in 0..=INTERESTS_MAX {
        want(&mut feed, &format!("s{number}"));
    }
    assert_eq!(answers(&mut received).len(), INTERESTS_MAX);
    assert_eq!(feed.interest.len(), INTERESTS_MAX);
    let _received = attach(&mut feed, 2);
    assert!(feed.interest.is_empty());
}
