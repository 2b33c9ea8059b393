//! Pods that come from files, and pods that the control plane named before it went away.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::ControlPlaneEvent;
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::{ContainerState, ContainerStatus};
use swiftlet_model::sources::{CONFIG_HASH, CONFIG_SOURCE, Source, SourcePods};

use crate::testing::stand::{Stand, pod};

/// A static pod named `etcd-n1`.
fn static_pod(uid: &str) -> Pod {
    let mut pod = pod(uid);
    pod.metadata.name = Some("etcd-n1".into());
    let marks = [(CONFIG_SOURCE, "file"), (CONFIG_HASH, uid)];
    let marks = marks.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pod.metadata.annotations = Some(marks.into());
    pod
}

async fn files(stand: &Stand, pods: &[&Pod]) {
    let list = SourcePods {
        source: Source::File,
        pods: pods.iter().map(|pod| Arc::new((*pod).clone())).collect(),
    };
    stand.sources.send(list).await.unwrap();
}

/// The uids of pods with a running container.
fn running(stand: &Stand) -> Vec<String> {
    let state = stand.runtime.state.lock().unwrap();
    let pods = state.sandboxes.iter().filter(|sandbox| {
        let of = |one: &&ContainerStatus| one.sandbox == sandbox.id;
        let mut containers = state.containers.iter().filter(of);
        containers.any(|one| one.state == ContainerState::Running)
    });
    let mut uids: Vec<_> = pods.map(|sandbox| sandbox.pod.uid.to_string()).collect();
    uids.sort_unstable();
    uids
}

/// A reboot: nothing is left in the runtime.
fn reboot(stand: &Stand) {
    let mut state = stand.runtime.state.lock().unwrap();
    state.sandboxes.clear();
    state.containers.clear();
}

/// The mirror pod that the kubelet has asked for last, as the API stores it.
fn stored_mirror(stand: &Stand, uid: &str) -> Pod {
    let mut mirror = stand
        .control_plane
        .told
        .lock()
        .unwrap()
        .mirrors
        .last()
        .cloned()
        .unwrap();
    mirror.metadata.uid = Some(uid.to_owned());
    mirror
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_runs_without_a_control_plane() {
    let stand = Stand::unconnected().await;
    files(&stand, &[&static_pod("h1")]).await;
    stand.seconds(2).await;
    assert_eq!(running(&stand), ["h1"]);
    // Its file goes, and so does the pod.
    files(&stand, &[]).await;
    stand.seconds(60).await;
    assert!(running(&stand).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_shown_by_a_mirror_pod_that_comes_again_when_it_is_deleted() {
    let stand = Stand::new().await;
    files(&stand, &[&static_pod("h1")]).await;
    stand.seconds(2).await;
    let mirror = stored_mirror(&stand, "m-1");
    stand.upsert(&mirror).await;
    stand.seconds(2).await;
    assert_eq!(stand.phase("m-1").as_deref(), Some("Running"));
    assert_eq!(stand.phase("h1"), None, "the API has no such pod");
    assert_eq!(
        running(&stand),
        ["h1"],
        "the mirror pod itself does not run"
    );
    // Somebody deletes it: the pod goes on, and is shown again.
    stand
        .send(ControlPlaneEvent::PodRemoved(PodKey::of(&mirror)))
        .await;
    stand.seconds(1).await;
    assert_eq!(stand.control_plane.told.lock().unwrap().mirrors.len(), 2);
    stand.upsert(&stored_mirror(&stand, "m-2")).await;
    stand.seconds(1).await;
    assert_eq!(stand.phase("m-2").as_deref(), Some("Running"));
    assert_eq!(running(&stand), ["h1"]);
    // The file goes: pod and picture go.
    files(&stand, &[]).await;
    stand.seconds(60).await;
    let removed = stand
        .control_plane
        .told
        .lock()
        .unwrap()
        .mirrors_removed
        .clone();
    assert!(removed.iter().any(|key| key.uid.as_str() == "m-2"));
    assert!(running(&stand).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_is_a_new_pod_that_starts_when_nothing_of_the_old_one_is_left() {
    let stand = Stand::new().await;
    files(&stand, &[&static_pod("h1")]).await;
    stand.seconds(2).await;
    files(&stand, &[&static_pod("h2")]).await;
    for _ in 0..600 {
        stand.turn(std::time::Duration::from_millis(100)).await;
        assert!(running(&stand).len() <= 1, "never both");
    }
    assert_eq!(running(&stand), ["h2"]);
}

#[tokio::test(start_paused = true)]
async fn a_static_pod_that_is_taken_away_and_put_back_runs_again() {
    let stand = Stand::new().await;
    let etcd = static_pod("h1");
    files(&stand, &[&etcd]).await;
    stand.seconds(2).await;
    let slow = std::time::Duration::from_secs(5);
    let takes = |takes| {
        let mut state = stand.runtime.state.lock().unwrap();
        state.stop_takes.insert("main".into(), takes);
    };
    takes(slow);
    files(&stand, &[]).await;
    stand.seconds(1).await;
    files(&stand, &[&etcd]).await;
    stand.seconds(60).await;
    assert_eq!(running(&stand), ["h1"]);
    let first = stand.runtime.container("main").id;
    // And once more, so that nothing of the first time is remembered.
    files(&stand, &[]).await;
    stand.seconds(1).await;
    files(&stand, &[&etcd]).await;
    stand.seconds(60).await;
    assert_eq!(running(&stand), ["h1"]);
    assert_ne!(stand.runtime.container("main").id, first);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_the_control_plane_outlive_a_reboot_without_it() {
    let stand = Stand::new().await;
    let (kept, deleted) = (pod("kept"), pod("deleted"));
    stand.upsert(&kept).await;
    stand.upsert(&deleted).await;
    stand.seconds(2).await;
    // The API's objects come back with their statuses.
    stand.upsert(&kept).await;
    stand.upsert(&deleted).await;
    stand.seconds(20).await;
    reboot(&stand);
    stand.control_plane.told.lock().unwrap().connected = false;
    let stand = stand.restart().await;
    stand.seconds(2).await;
    assert!(
        running(&stand).is_empty(),
        "the control plane may still speak"
    );
    stand.seconds(5).await;
    assert_eq!(running(&stand), ["deleted", "kept"]);
    stand.control_plane.told.lock().unwrap().connected = true;
    stand.list(&[&kept]).await;
    stand.seconds(60).await;
    assert_eq!(
        running(&stand),
        ["kept"],
        "one was deleted while the node was away"
    );
}

#[tokio::test(start_paused = true)]
async fn known_pods_that_start_alone_get_what_they_lack_when_the_control_plane_is_there() {
    let stand = Stand::new().await;
    let kept = pod("kept");
    stand.upsert(&kept).await;
    stand.seconds(20).await;
    reboot(&stand);
    stand.control_plane.told.lock().unwrap().connected = false;
    // The last document was written by a program that knew no Services.
    let all = || stand.node.checkpoints.all.lock().unwrap();
    let document = all().get("last-known-pods").unwrap().clone();
    let pods = document.iter().position(|byte| *byte == b'\n').unwrap();
    let document = [b"{}", &document[pods..]].concat();
    all().insert("last-known-pods".to_owned(), document);
    let lacking = "volume \"a\" lacks its token \"token\"";
    let stand = stand.restart().await;
    *stand.node.lacking.lock().unwrap() = Some(lacking.to_owned());
    stand.seconds(7).await;
    assert_eq!(
        running(&stand),
        ["kept"],
        "no Services are known, and no token"
    );

    let before = *stand.node.refreshes.lock().unwrap();
    stand.control_plane.told.lock().unwrap().events.clear();
    stand.control_plane.told.lock().unwrap().connected = true;
    stand.list(&[&kept]).await;
    stand.seconds(1).await;
    assert_eq!(*stand.node.refreshes.lock().unwrap(), before + 1);
    let told = stand.control_plane.told.lock().unwrap();
    let told: Vec<_> = told.events.iter().map(|event| &event.message).collect();
    assert!(told.contains(&&Some(lacking.to_owned())), "{told:?}");
}
