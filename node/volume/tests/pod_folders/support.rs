//! A control plane that is a table, and volumes over it in a folder of their own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Pod, PodStatus, Service};
use swiftlet_model::BoxFuture;
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::{
    ControlPlane, ControlPlaneError, ObjectRef, RefKind, ReferencedData, Token, TokenRequest,
};
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::volumes::Volumes as _;
use swiftlet_sys::mount;
use swiftlet_volume::{Amounts, Folders, PodFolders};

pub(crate) const UID: &str = "11aa-22bb";

/// Answers what the test put into it.
#[derive(Default)]
pub(crate) struct Table {
    objects: Mutex<BTreeMap<ObjectRef, ReferencedData>>,
    whole: Mutex<BTreeMap<ObjectRef, Bytes>>,
    /// How long the next token lives; `None`: none is given.
    pub(crate) token_life: Mutex<Option<SignedDuration>>,
    /// It has not been reached yet: it answers nothing.
    pub(crate) is_away: AtomicBool,
    /// What was asked for.
    pub(crate) tokens: Mutex<Vec<TokenRequest>>,
    /// What nobody uses any more.
    pub(crate) forgotten: Mutex<Vec<ObjectRef>>,
    pub(crate) clock: Arc<TableClock>,
}

/// Stands until it is turned.
pub(crate) struct TableClock(pub(crate) Mutex<Timestamp>);

impl Default for TableClock {
    fn default() -> Self {
        Self(Mutex::new(Timestamp::from_second(1_700_000_000).unwrap()))
    }
}

impl TableClock {
    pub(crate) fn turn(&self, seconds: i64) {
        let mut now = self.0.lock().unwrap();
        *now += SignedDuration::from_secs(seconds);
    }
}

impl Clock for TableClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn timestamp(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

impl Table {
    fn speaks(&self) -> Result<(), ControlPlaneError> {
        let speaks = self.ever_connected();
        speaks.then_some(()).ok_or(ControlPlaneError::Disconnected)
    }

    /// Puts an object that is read as a whole.
    pub(crate) fn put_whole(&self, kind: RefKind, name: &str, object: &serde_json::Value) {
        let namespace = match kind {
            RefKind::PersistentVolume | RefKind::Node => "",
            _ => "default",
        };
        let key = ObjectRef {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        let object = Bytes::from(object.to_string());
        self.whole.lock().unwrap().insert(key, object);
    }

    pub(crate) fn put(&self, kind: RefKind, name: &str, files: &[(&str, &str)]) {
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
    fn ever_connected(&self) -> bool {
        !self.is_away.load(Ordering::Relaxed)
    }

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
        Box::pin(async {
            self.speaks()?;
            Ok(self.objects.lock().unwrap().get(object).cloned())
        })
    }

    fn forget(&self, object: &ObjectRef) {
        self.forgotten.lock().unwrap().push(object.clone());
    }

    fn service_account_token<'a>(
        &'a self,
        request: &'a TokenRequest,
    ) -> BoxFuture<'a, Result<Token, ControlPlaneError>> {
        Box::pin(async {
            self.speaks()?;
            let mut tokens = self.tokens.lock().unwrap();
            tokens.push(request.clone());
            let life = self.token_life.lock().unwrap();
            let life = life.ok_or(ControlPlaneError::Disconnected)?;
            Ok(Token {
                token: format!("head.{}.sign", tokens.len()),
                expires_at: self.clock.timestamp() + life,
            })
        })
    }

    fn services<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Vec<Service>>, ControlPlaneError>> {
        Box::pin(async { Ok(Arc::default()) })
    }

    fn forget_services(&self, _: &str) {}

    fn object<'a>(
        &'a self,
        object: &'a ObjectRef,
    ) -> BoxFuture<'a, Result<Option<Bytes>, ControlPlaneError>> {
        Box::pin(async { Ok(self.whole.lock().unwrap().get(object).cloned()) })
    }

    fn create_mirror_pod<'a>(&'a self, _: &'a Pod) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }

    fn delete_mirror_pod<'a>(
        &'a self,
        _: &'a PodKey,
    ) -> BoxFuture<'a, Result<(), ControlPlaneError>> {
        Box::pin(async { Ok(()) })
    }
}

pub(crate) struct Fixture {
    pub(crate) table: Arc<Table>,
    pub(crate) volumes: PodFolders,
    pub(crate) dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders {
            root: dir.path().join("root"),
            logs: dir.path().join("logs"),
        };
        let table = Arc::new(Table::default());
        let volumes = PodFolders::new(folders, Arc::clone(&table) as Arc<dyn ControlPlane>)
            .with_clock(Arc::clone(&table.clock) as Arc<dyn Clock>)
            .with_amounts(|| Amounts {
                cpu_milli: 4000,
                memory_bytes: 1 << 30,
                ephemeral_storage_bytes: 1 << 34,
            });
        Self {
            table,
            volumes,
            dir,
        }
    }

    /// Below the pod's folder.
    pub(crate) fn at(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join("root/pods").join(UID).join(name)
    }

    pub(crate) async fn tear_down(&self) {
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

pub(crate) fn pod(volumes: serde_json::Value, fs_group: Option<i64>) -> Arc<Pod> {
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

pub(crate) fn read(path: &Path, name: &str) -> String {
    std::fs::read_to_string(path.join(name)).unwrap()
}
