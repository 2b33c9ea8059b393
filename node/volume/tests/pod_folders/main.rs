//! Volumes on a real disk and with real mounts, the control plane a table.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod alone;
mod claims;
mod pod_files;
mod projected;
mod sub_paths;
mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::RefKind;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{VolumeError, Volumes as _};
use swiftlet_sys::mount;

use crate::support::{Fixture, UID, pod, read};

#[tokio::test]
async fn every_served_kind_is_made_twice_over_and_removed_without_a_trace() {
    let fixture = Fixture::new();
    fixture
        .table
        .put(RefKind::ConfigMap, "cm", &[("a.conf", "one")]);
    fixture
        .table
        .put(RefKind::Secret, "s", &[("password", "hunter2")]);
    let pod = pod(
        serde_json::json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "host", "hostPath": {"path": "/etc", "type": "Directory"}},
            {"name": "config", "configMap": {"name": "cm"}},
            {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
        ]),
        None,
    );
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    std::fs::write(places["disk"].join("mine"), "kept").unwrap();
    assert_eq!(fixture.volumes.set_up(&pod).await.unwrap(), places);
    assert_eq!(read(&places["disk"], "mine"), "kept");
    assert_eq!(
        std::fs::metadata(&places["disk"]).unwrap().mode() & 0o7777,
        0o777
    );
    assert!(std::fs::write(places["fast"].join("large"), vec![0; 2 << 20]).is_err());
    assert_eq!(places["host"], Path::new("/etc"));
    assert_eq!(read(&places["config"], "a.conf"), "one");
    assert_eq!(read(&places["secret"], "password"), "hunter2");
    assert!(mount::is_mounted(&places["secret"]).unwrap());
    let end = format!("root/pods/{UID}/volumes/kubernetes.io~empty-dir/disk");
    assert!(places["disk"].ends_with(end));
    for container in ["main", "prepare"] {
        let logs = fixture
            .dir
            .path()
            .join(format!("logs/default_web_{UID}/{container}"));
        assert!(logs.is_dir(), "{}", logs.display());
    }
    assert_eq!(
        fixture.volumes.pods_on_disk().await.unwrap(),
        [PodUid::from(UID)]
    );
    fixture.tear_down().await;
    assert!(Path::new("/etc/passwd").exists());
}

#[tokio::test]
async fn a_refresh_shows_new_data_under_the_same_paths() {
    let fixture = Fixture::new();
    fixture
        .table
        .put(RefKind::ConfigMap, "cm", &[("a", "1"), ("b", "1")]);
    let pod = pod(
        serde_json::json!([{"name": "config", "configMap": {"name": "cm"}}]),
        None,
    );
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    fixture
        .table
        .put(RefKind::ConfigMap, "cm", &[("a", "2"), ("c", "2")]);
    fixture.volumes.refresh(&pod).await.unwrap();
    assert_eq!(read(&places["config"], "a"), "2");
    assert_eq!(read(&places["config"], "c"), "2");
    assert!(!places["config"].join("b").exists());
    fixture.tear_down().await;
}

#[tokio::test]
async fn a_missing_object_is_named_unless_it_is_optional() {
    let fixture = Fixture::new();
    let strict = pod(
        serde_json::json!([{"name": "config", "configMap": {"name": "cm"}}]),
        None,
    );
    let error = fixture.volumes.set_up(&strict).await.unwrap_err();
    let words = "MountVolume.SetUp failed for volume \"config\" : configmap \"cm\" not found";
    assert_eq!(error.to_string(), words);
    let lax = pod(
        serde_json::json!([{"name": "s", "secret": {"secretName": "none", "optional": true}}]),
        None,
    );
    let places = fixture.volumes.set_up(&lax).await.unwrap();
    assert!(places["s"].join("..data").is_dir());
    fixture
        .table
        .put(RefKind::Secret, "none", &[("late", "yes")]);
    fixture.volumes.refresh(&lax).await.unwrap();
    assert_eq!(read(&places["s"], "late"), "yes");
    fixture.tear_down().await;
}

#[tokio::test]
async fn the_pods_group_owns_what_it_may_write() {
    let fixture = Fixture::new();
    fixture.table.put(RefKind::ConfigMap, "cm", &[("a", "1")]);
    let pod = pod(
        serde_json::json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "config", "configMap": {"name": "cm", "defaultMode": 0o400}},
        ]),
        Some(2000),
    );
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    let disk = std::fs::metadata(&places["disk"]).unwrap();
    assert_eq!((disk.gid(), disk.mode() & 0o7777), (2000, 0o2777));
    let file = std::fs::metadata(places["config"].join("a")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o7777), (2000, 0o440));
    fixture.tear_down().await;
}

#[tokio::test]
async fn what_is_not_served_is_refused_by_name() {
    let fixture = Fixture::new();
    let pod = pod(
        serde_json::json!([{"name": "token", "csi": {"driver": "x"}}]),
        None,
    );
    let error = fixture.volumes.set_up(&pod).await.unwrap_err();
    assert!(matches!(error, VolumeError::Unsupported { .. }), "{error}");
    let escape = fixture
        .volumes
        .tear_down(&PodUid::from("../.."), true)
        .await;
    assert!(escape.is_err());
    let mut pod = Pod::default();
    pod.metadata.uid = Some("../../x".into());
    pod.metadata.name = Some("web".into());
    assert!(fixture.volumes.set_up(&Arc::new(pod)).await.is_err());
    assert!(!fixture.dir.path().join("x").exists());
}

#[tokio::test]
async fn a_mount_that_is_busy_keeps_everything_below_it() {
    let fixture = Fixture::new();
    let memory = serde_json::json!([{"name": "fast", "emptyDir": {"medium": "Memory"}}]);
    let places = fixture.volumes.set_up(&pod(memory, None)).await.unwrap();
    let path = places["fast"].join("data");
    std::fs::write(&path, "precious").unwrap();
    let open = std::fs::File::open(&path).unwrap();
    let error = fixture
        .volumes
        .tear_down(&PodUid::from(UID), true)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("mounted still"), "{error}");
    assert_eq!(read(&places["fast"], "data"), "precious");
    drop(open);
    fixture.tear_down().await;
}

#[tokio::test]
async fn logs_stay_until_they_are_to_go() {
    let fixture = Fixture::new();
    let disk = pod(serde_json::json!([{"name": "disk", "emptyDir": {}}]), None);
    let places = fixture.volumes.set_up(&disk).await.unwrap();
    let logs = fixture.dir.path().join(format!("logs/default_web_{UID}"));
    std::fs::write(logs.join("main/0.log"), "last words").unwrap();
    let pod = PodUid::from(UID);
    fixture.volumes.tear_down(&pod, false).await.unwrap();
    assert!(!places["disk"].exists());
    assert_eq!(read(&logs, "main/0.log"), "last words");
    fixture.tear_down().await;
}

#[tokio::test]
async fn logs_from_before_this_program_started_are_found_and_known_ones_are_not_looked_for() {
    let fixture = Fixture::new();
    let disk = pod(serde_json::json!([]), None);
    fixture.volumes.set_up(&disk).await.unwrap();
    // Whatever else ends like this is not the pod's, whose name is known.
    let other = fixture.dir.path().join(format!("logs/other_web_{UID}"));
    std::fs::create_dir(&other).unwrap();
    let pod = PodUid::from(UID);
    fixture.volumes.tear_down(&pod, true).await.unwrap();
    assert!(other.exists());
    let logs = fixture.dir.path().join(format!("logs/default_web_{UID}"));
    assert!(!logs.exists());
    // Now it is a pod that nobody knows.
    fixture.tear_down().await;
    assert!(!other.exists());
}

#[tokio::test]
async fn a_folder_whose_making_was_interrupted_is_finished_by_the_next_try() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let pod = pod(
        serde_json::json!([
            {"name": "disk", "emptyDir": {}},
            {"name": "fast", "emptyDir": {"medium": "Memory"}},
        ]),
        Some(2000),
    );
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    let look = |name: &str| {
        let folder = std::fs::metadata(&places[name]).unwrap();
        (folder.gid(), folder.mode() & 0o7777)
    };
    for name in ["disk", "fast"] {
        assert_eq!(look(name), (2000, 0o2777), "{name}");
        // As a crash leaves it: made, but neither owner nor mode are set.
        std::os::unix::fs::chown(&places[name], None, Some(0)).unwrap();
        let unfinished = std::fs::Permissions::from_mode(0o1000);
        std::fs::set_permissions(&places[name], unfinished).unwrap();
        fixture.volumes.set_up(&pod).await.unwrap();
        assert_eq!(look(name), (2000, 0o2777), "{name}");
        // What the pod itself has changed stays.
        std::fs::set_permissions(&places[name], std::fs::Permissions::from_mode(0o700)).unwrap();
        fixture.volumes.set_up(&pod).await.unwrap();
        assert_eq!(look(name).1, 0o700, "{name}");
    }
    fixture.tear_down().await;
}

#[tokio::test]
async fn a_volume_of_huge_pages_is_mounted_where_the_kernel_has_them() {
    let fixture = Fixture::new();
    let volumes = serde_json::json!([{"name": "huge", "emptyDir": {"medium": "HugePages-2Mi"}}]);
    let mut pod = (*pod(volumes, None)).clone();
    let requests = serde_json::json!({"requests": {"hugepages-2Mi": "4Mi"}});
    let main = &mut pod.spec.as_mut().unwrap().containers[0];
    main.resources = serde_json::from_value(requests).unwrap();
    let made = fixture.volumes.set_up(&std::sync::Arc::new(pod)).await;
    let has_pages = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").exists();
    assert_eq!(made.is_ok(), has_pages, "{made:?}");
    if let Ok(places) = made {
        let folder = std::fs::metadata(&places["huge"]).unwrap();
        assert!(mount::is_mounted(&places["huge"]).unwrap());
        assert_eq!(folder.mode() & 0o7777, 0o777);
    }
    fixture.tear_down().await;
}
