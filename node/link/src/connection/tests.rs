//! The connection's own decisions, without a network.

use futures::FutureExt as _;

use super::*;

#[test]
fn secrets_are_decoded_and_config_maps_are_not() {
    let secret = data_of(RefKind::Secret, br#"{"data":{"k":"dmFsdWU="}}"#);
    assert_eq!(secret["k"], b"value");
    let map = data_of(
        RefKind::ConfigMap,
        br#"{"data":{"k":"v"},"binaryData":{"b":"AAE="}}"#,
    );
    assert_eq!(map["k"], b"v");
    assert_eq!(map["b"], [0, 1]);
}

#[test]
fn a_change_is_told_only_after_the_first_answer() {
    let (events, _receiver) = mpsc::channel(1);
    let mut connection = Connection::new("n".into(), "v".into(), events);
    let object = ObjectRef {
        kind: RefKind::ConfigMap,
        namespace: "default".into(),
        name: "settings".into(),
    };
    let (done, mut answer) = oneshot::channel();
    connection
        .referenced
        .insert(object.clone(), Referenced::Waiting(vec![done]));
    let say = |json: &str| ReferencedObject {
        kind: "ConfigMap".into(),
        namespace: "default".into(),
        name: "settings".into(),
        object_json: Some(json.as_bytes().to_vec().into()),
    };
    assert_eq!(connection.remember(say(r#"{"data":{"a":"1"}}"#)), None);
    assert!(
        answer
            .try_recv()
            .expect("answered")
            .expect("no error")
            .is_some()
    );
    assert_eq!(connection.remember(say(r#"{"data":{"a":"1"}}"#)), None);
    assert_eq!(
        connection.remember(say(r#"{"data":{"a":"2"}}"#)),
        Some(object)
    );
}

#[test]
fn nobody_waits_for_a_connection_that_is_gone() {
    let (events, _receiver) = mpsc::channel(1);
    let mut connection = Connection::new("n".into(), "v".into(), events);
    let object = ObjectRef {
        kind: RefKind::Secret,
        namespace: "default".into(),
        name: "key".into(),
    };
    let (done, mut data) = oneshot::channel();
    let waiting = Referenced::Waiting(vec![done]);
    connection.referenced.insert(object.clone(), waiting);
    let (done, mut report) = oneshot::channel();
    connection.unacknowledged.insert(1, done);
    connection.answer_all();
    let lost = data.try_recv().expect("answered");
    assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
    let lost = report.try_recv().expect("answered");
    assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
    // The next connection asks for the object again.
    assert!(connection.referenced.contains_key(&object));
}

#[tokio::test]
async fn a_request_that_finds_no_place_stays_where_it_is() {
    let (outgoing, mut stream) = mpsc::channel(1);
    let (asks, mut requests) = mpsc::channel(1);
    let message = |wanted| {
        let object = ObjectRef {
            kind: RefKind::Secret,
            namespace: "default".into(),
            name: "key".into(),
        };
        interest(&object, wanted)
    };
    let first = NodeMessage {
        sequence: 0,
        message: Some(message(true)),
    };
    outgoing.try_send(first).expect("there is a place");
    let message = message(false);
    let request = Request::BestEffort { message };
    asks.try_send(request).expect("there is a place");
    let taken = next_request(&outgoing, &mut requests).now_or_never();
    assert!(taken.is_none(), "there was no place for it");
    assert_eq!(requests.len(), 1);
    stream.recv().await.expect("what was there");
    let taken = next_request(&outgoing, &mut requests).await;
    assert!(matches!(taken, Event::Request(..)));
    drop(taken);
    drop(stream);
    let taken = next_request(&outgoing, &mut requests).await;
    assert!(matches!(taken, Event::Lost(_)));
}
