//! Hosts, last words, ends of logs, and what a pod takes.

use std::os::unix::fs::MetadataExt as _;

use serde_json::json;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{PodFiles as _, Volumes as _};

use crate::support::{Fixture, UID, pod};

#[tokio::test]
async fn the_table_of_hosts_is_there_before_its_content_and_is_changed_in_place() {
    let fixture = Fixture::new();
    let (pod, uid) = (pod(json!([]), None), PodUid::from(UID));
    fixture.volumes.set_up(&pod).await.unwrap();
    let path = fixture.volumes.hosts_path(&uid);
    assert_eq!(path, fixture.at("etc-hosts"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    let number = std::fs::metadata(&path).unwrap().ino();
    for content in ["10.0.0.7\tweb\n", "10.0.0.8\tweb\n"] {
        let written = fixture.volumes.hosts_file(&uid, content).await.unwrap();
        assert_eq!(std::fs::read_to_string(written).unwrap(), content);
    }
    // A container may write there: it is not read as long as it is, and is as it was afterwards.
    let large = std::fs::File::options().write(true).open(&path).unwrap();
    large.set_len(1 << 40).unwrap();
    let content = "10.0.0.8\tweb\n";
    fixture.volumes.hosts_file(&uid, content).await.unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    fixture.volumes.set_up(&pod).await.unwrap();
    let found = std::fs::metadata(&path).unwrap();
    assert_eq!((found.ino(), found.mode() & 0o7777), (number, 0o644));
    assert!(
        fixture
            .volumes
            .node_hosts()
            .await
            .unwrap()
            .contains("localhost")
    );
    fixture.tear_down().await;
}

#[tokio::test]
async fn last_words_are_read_from_their_end_and_stay_with_the_logs() {
    let fixture = Fixture::new();
    let (pod, uid) = (pod(json!([]), None), PodUid::from(UID));
    fixture.volumes.set_up(&pod).await.unwrap();
    let files = &fixture.volumes;
    let none = files
        .termination_message(&uid, "main", 0, 10)
        .await
        .unwrap();
    assert_eq!(none, "");
    let path = files.termination_log(&uid, "main", 0).await.unwrap();
    assert_eq!(path, fixture.at("containers/main/0"));
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o666);
    std::fs::write(&path, "it was the disk").unwrap();
    files.termination_log(&uid, "main", 0).await.unwrap();
    files.tear_down(&uid, false).await.unwrap();
    let said = files.termination_message(&uid, "main", 0, 8).await.unwrap();
    assert_eq!(said, "the disk");
    assert!(files.termination_log(&uid, "../x", 0).await.is_err());
    assert!(!fixture.at("etc-hosts").exists());
    for attempt in 1..12 {
        files.termination_log(&uid, "main", attempt).await.unwrap();
    }
    let kept = std::fs::read_dir(fixture.at("containers/main")).unwrap();
    assert_eq!(kept.count(), 8);
    fixture.tear_down().await;
}

#[tokio::test]
async fn the_end_of_a_log_is_read_without_its_beginning() {
    let fixture = Fixture::new();
    let log = fixture.dir.path().join("0.log");
    let files = &fixture.volumes;
    assert_eq!(files.log_tail(&log, 80, 2048).await.unwrap(), "");
    let line = |number: usize| format!("2026-11-30T09:00:00.000000000Z stdout F line {number}\n");
    let lines: String = (0..5000).map(line).collect();
    std::fs::write(&log, lines).unwrap();
    let tail = files.log_tail(&log, 2, 2048).await.unwrap();
    assert_eq!(tail, "line 4998\nline 4999\n");
    let tail = files.log_tail(&log, 80, 15).await.unwrap();
    assert_eq!(tail, "4998\nline 4999\n");
    fixture.tear_down().await;
}
