use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::recorder::{EventType, Recorder};

#[tokio::test(start_paused = true)]
async fn the_same_event_is_counted_and_another_one_created() {
    let (_, client) = fake();
    let map = client.create(&config_map("a", "1")).await.unwrap();
    let recorder = Recorder::spawn(Arc::clone(client.api()), "tester", CancellationToken::new());
    for message in ["same", "same", "other", "same"] {
        recorder.record(&map, EventType::Warning, "Reason", message);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (events, _) = client.list::<Event>(Some("default")).await.unwrap();
    let mut counts: Vec<_> = events
        .iter()
        .map(|event| (event.message.clone().unwrap(), event.count.unwrap()))
        .collect();
    counts.sort();
    assert_eq!(counts, [("other".to_owned(), 1), ("same".to_owned(), 3)]);
    let event = &events[0];
    assert_eq!(event.involved_object.kind.as_deref(), Some("ConfigMap"));
    assert_eq!(event.involved_object.uid, map.metadata.uid);
    assert_eq!(
        event.source.as_ref().unwrap().component.as_deref(),
        Some("tester")
    );
    assert_eq!(event.type_.as_deref(), Some("Warning"));
}
