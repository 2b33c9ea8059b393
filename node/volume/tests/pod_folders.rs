//! Volumes on a real disk and with real mounts, the control plane a table.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus};
use swiftlet_model::BoxFuture;
use swiftlet_model::control_plane::{
    ControlPlane, ControlPlaneError, ObjectRef, RefKind, ReferencedData,
};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::volumes::{VolumeError, Volumes};
use swiftlet_sys::mount;
use swiftlet_volume::{Folders, PodFolders};

const UID: &str = "11aa-22bb";

/// Answers what the test put into it.
#[derive(Default)]
struct Table {
    objects: Mutex<BTreeMap<ObjectRef, ReferencedData>>,
}

impl Table {
    fn put(&self, kind: RefKind, name: &str, files: &[(&str, &str)]) {
        let object = ObjectRef {
            kind,
            namespace: "default".into(),
            name: name.into(),
        };
        let bytes = |(key, text): &(&str, &str)| ((*key).to_owned(), text.as_bytes().to_vec());
        let data = Arc::new(files.iter().map(bytes).collect());
        self.objects.lock().unwrap().insert(object, data);
    }
}

impl ControlPlane for Table {
    fn publish_status<'a>(
        &'a self,
        _: &'a PodKey,
        _: &'a PodStatus,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }

    fn pod_gone<'a>(&'a self, _: &'a PodKey) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }

    fn publish_node<'a>(&'a self, _: &'a Node) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }

    fn renew_lease(&self, _: u32) -> BoxFuture<'_, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }

    fn record(&self, _: Event) {}

    fn referenced<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<ReferencedData>, ControlPlaneError>> {
        Box::pin(async { Ok(self.objects.lock().unwrap().get(object).cloned()) })
    }

    fn forget(&self, _: &ObjectRef) {}
}

struct Fixture {
    table: Arc<Table>,
    volumes: PodFolders,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            root: dir.path().join("root"),
            logs: dir.path().join("logs"),
        };
        let table = Arc::new(Table::default());
        let volumes = PodFolders::new(folders, Arc::clone(&table) as Arc<dyn ControlPlane>);
        Self {
            table,
            volumes,
            dir,
        }
    }

    async fn tear_down(&self) {
        for _ in 0..2 {
            let pod = PodUid::from(UID);
            self.volumes.tear_down(&pod, true).await.unwrap();
        }
        assert!(mount::below(self.dir.path()).unwrap().is_empty());
        assert!(self.volumes.pods_on_disk().await.unwrap().is_empty());
        let logs = std::fs::read_dir(self.dir.path().join("logs"))
            .into_iter()
            .flatten();
        assert_eq!(logs.count(), 0);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for point in mount::below(self.dir.path()).unwrap() {
            mount::unmount(&point).ok();
        }
    }
}

fn pod(volumes: serde_json::Value, fs_group: Option<i64>) -> Arc<Pod> {
    let pod = serde_json::json!({
        "metadata": {"name": "web", "namespace": "default", "uid": UID},
        "spec": {
            "securityContext": {"fsGroup": fs_group},
            "containers": [{"name": "main"}],
            "initContainers": [{"name": "prepare"}],
            "volumes": volumes,
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn read(path: &Path, name: &str) -> String {
    std::fs::read_to_string(path.join(name)).unwrap()
}

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
    let words = "MountVolume.SetUp failed for volume \"config\": configmap \"cm\" not found";
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
        serde_json::json!([{"name": "token", "projected": {"sources": []}}]),
        None,
    );
    let error = fixture.volumes.set_up(&pod).await.unwrap_err();
    assert!(matches!(error, VolumeError::Unsupported { .. }), "{error}");
    let escape = fixture
        .volumes
        .tear_down(&PodUid::from("../.."), true)
        .await;
    assert!(escape.is_err());
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
