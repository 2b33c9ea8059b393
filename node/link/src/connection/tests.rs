//! The connection's own decisions, without a network.

use futures::FutureExt as _;
use swiftlet_model::control_plane::{ObjectRef, RefKind};

use super::*;

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
    connection.interests.ask(Ask::Object(object.clone(), done));
    let (done, mut report) = oneshot::channel();
    connection.unacknowledged.insert(1, done);
    connection.answer_all();
    let lost = data.try_recv().expect("answered");
    assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
    let lost = report.try_recv().expect("answered");
    assert!(matches!(lost, Err(ControlPlaneError::Disconnected)));
    // The next connection asks for the object again.
    let asked: Vec<_> = connection.interests.subjects().cloned().collect();
    assert_eq!(asked, [Subject::Object(object)]);
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
        interest(&Subject::Object(object), wanted)
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

#[tokio::test(start_paused = true)]
async fn a_request_waits_only_a_moment_for_a_connection_that_is_not_made() {
    let (events, _receiver) = mpsc::channel(1);
    let mut connection = Connection::new("n".into(), "v".into(), events);
    let (asks, mut requests) = mpsc::channel(1);
    let (done, answer) = oneshot::channel();
    let ask = Ask::Services("kube-system".into(), done);
    asks.try_send(Request::Ask(ask)).expect("there is a place");
    let start = tokio::time::Instant::now();
    let answered = tokio::select! {
        answer = answer => answer.expect("answered"),
        _ = connection.refuse(OPEN_PATIENCE, &mut requests) => panic!("there is a handle"),
    };
    assert!(matches!(answered, Err(ControlPlaneError::Disconnected)));
    assert_eq!(start.elapsed(), OPEN_PATIENCE);
    drop(asks);
    let next = connection.refuse(Duration::ZERO, &mut requests).await;
    assert!(next.is_shutdown());
}
