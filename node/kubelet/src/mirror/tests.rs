use swiftlet_model::sources::{CONFIG_SOURCE, Source};

use super::*;
use crate::testing::control_plane::FakeControlPlane;

fn pod(uid: &str, marks: &[(&str, &str)]) -> Arc<Pod> {
    let annotations = marks
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()));
    let metadata = ObjectMeta {
        name: Some("etcd-n1".into()),
        namespace: Some("kube-system".into()),
        uid: Some(uid.into()),
        annotations: Some(annotations.collect()),
        ..ObjectMeta::default()
    };
    Arc::new(Pod {
        metadata,
        ..Pod::default()
    })
}

fn of_file(hash: &str) -> Arc<Pod> {
    pod(hash, &[(CONFIG_SOURCE, "file"), (CONFIG_HASH, hash)])
}

fn mirror(uid: &str, hash: &str) -> Arc<Pod> {
    pod(uid, &[(CONFIG_MIRROR, hash)])
}

fn view(statics: &[Arc<Pod>], mirrors: &[Arc<Pod>]) -> View {
    let mut pods = PodManager::default();
    for pod in statics {
        pods.put(Source::File, Arc::clone(pod));
    }
    for pod in mirrors {
        pods.put_mirror(Arc::clone(pod));
    }
    View::of(&pods, true, true)
}

#[test]
fn a_static_pod_without_a_mirror_gets_one_of_its_hash_and_without_its_uid() {
    let steps = steps(&view(&[of_file("h1")], &[]));
    let [Step::Create(mirror)] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    assert_eq!(annotation(mirror, CONFIG_MIRROR), Some("h1"));
    assert_eq!(annotation(mirror, CONFIG_SOURCE), Some("file"));
    assert_eq!(mirror.metadata.uid, None);
}

#[test]
fn a_stale_a_dying_and_an_orphaned_mirror_are_removed_by_their_uid() {
    let removed = |statics: &[Arc<Pod>], mirror: Arc<Pod>| match steps(&view(statics, &[mirror]))
        .as_slice()
    {
        [Step::Delete(key)] => key.uid.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(removed(&[of_file("h2")], mirror("m-1", "h1")), "m-1");
    assert_eq!(removed(&[], mirror("m-2", "h1")), "m-2");
    let mut dying = Pod::clone(&mirror("m-3", "h1"));
    let time = jiff::Timestamp::UNIX_EPOCH;
    let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time);
    dying.metadata.deletion_timestamp = Some(time);
    assert_eq!(removed(&[of_file("h1")], Arc::new(dying)), "m-3");
    assert!(steps(&view(&[of_file("h1")], &[mirror("m", "h1")])).is_empty());
}

#[test]
fn nothing_is_removed_before_all_sources_have_spoken_and_nothing_said_without_a_connection() {
    let mut unread = view(&[], &[mirror("m-1", "h1")]);
    unread.complete = false;
    assert!(steps(&unread).is_empty());
    let mut alone = view(&[of_file("h1")], &[]);
    alone.connected = false;
    assert!(steps(&alone).is_empty());
}

#[tokio::test]
async fn a_static_pods_status_goes_to_its_mirror_pod_once_there_is_one() {
    let api = Arc::new(FakeControlPlane::new());
    let (views, seen) = watch::channel(view(&[of_file("h1")], &[]));
    let door = Door::new(Arc::clone(&api) as _, seen);
    let key = PodKey::of(&of_file("h1"));
    let status = k8s_openapi::api::core::v1::PodStatus::default();
    let early = door.publish_status(&key, &status).await;
    assert!(matches!(early, Err(ControlPlaneError::Disconnected)));
    views.send_replace(view(&[of_file("h1")], &[mirror("m-1", "h1")]));
    door.publish_status(&key, &status).await.unwrap();
    assert!(api.status("m-1").is_some());
    door.pod_gone(&key).await.unwrap();
    assert!(!api.is_gone("h1"));
    let other = PodKey {
        name: "web".into(),
        uid: "api-1".into(),
        ..key
    };
    door.publish_status(&other, &status).await.unwrap();
    assert!(api.status("api-1").is_some());
}

#[tokio::test]
async fn services_are_waited_for_once_the_control_plane_has_spoken() {
    let api = Arc::new(FakeControlPlane::new());
    let (_views, seen) = watch::channel(view(&[], &[]));
    let door = Door::new(Arc::clone(&api) as _, seen);
    api.told.lock().unwrap().connected = false;
    api.told.lock().unwrap().reached = false;
    assert!(door.services("default").await.unwrap().is_empty());
    // It has spoken, and is gone before it could answer.
    api.told.lock().unwrap().reached = true;
    api.told.lock().unwrap().silent = true;
    let waits = door.services("default").await;
    assert!(matches!(waits, Err(ControlPlaneError::Disconnected)));
}

#[tokio::test(start_paused = true)]
async fn the_keeper_repeats_until_the_api_has_taken_the_mirror_pod() {
    let api = Arc::new(FakeControlPlane::new());
    api.told.lock().unwrap().connected = false;
    let (_views, seen) = watch::channel(view(&[of_file("h1")], &[]));
    let shutdown = CancellationToken::new();
    let keeper = tokio::spawn(keep(seen, Arc::clone(&api) as _, shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(api.told.lock().unwrap().mirrors.is_empty());
    api.told.lock().unwrap().connected = true;
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(api.told.lock().unwrap().mirrors.len(), 1);
    shutdown.cancel();
    keeper.await.unwrap();
}
