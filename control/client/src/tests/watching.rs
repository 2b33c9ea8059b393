use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::api::{
    ApiError, DeleteParameters, ObjectName, PatchKind, RawEvent, RawList, RawWatch, Selection,
    WatchKind,
};
use crate::client::{Object, ObjectKey};
use crate::fake::error;
use crate::informer::{ChangeReceiver, Informer};
use crate::reflector::{Change, Index, Store, reflector};
use crate::watcher::{Watcher, WatcherEvent};

fn told(change: &Change<ConfigMap>) -> String {
    let value = |object: &ConfigMap| object.data.as_ref().unwrap()["value"].clone();
    match change {
        Change::Added(new) => format!("+{}={}", new.name(), value(new)),
        Change::Updated { old, new } => format!("{}={}>{}", new.name(), value(old), value(new)),
        Change::Deleted(old) => format!("-{}", old.name()),
    }
}

fn informer(client: &Client) -> (Store<ConfigMap>, ChangeReceiver<ConfigMap>) {
    let by_value = Index {
        name: "value",
        values: |map: &ConfigMap| vec![value_of(map)],
    };
    let mut informer = Informer::new(Arc::clone(client.api()), vec![by_value]);
    let parts = (informer.store(), informer.subscribe());
    informer.spawn(CancellationToken::new());
    parts
}

fn value_of(map: &ConfigMap) -> String {
    map.data
        .as_ref()
        .map(|data| data["value"].clone())
        .unwrap_or_default()
}

async fn drain(changes: &mut ChangeReceiver<ConfigMap>) -> Vec<String> {
    tokio::time::sleep(Duration::from_secs(30)).await;
    std::iter::from_fn(|| changes.try_recv().ok())
        .map(|change| told(&change))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn an_informer_tells_old_and_new_and_its_store_follows() {
    let (_, client) = fake();
    client.create(&config_map("a", "1")).await.unwrap();
    let (store, mut changes) = informer(&client);
    assert!(store.wait_synced().await);
    let b = client.create(&config_map("b", "1")).await.unwrap();
    client.update(&config_map("a", "2")).await.unwrap();
    client
        .delete::<ConfigMap>(&b.key(), DeleteParameters::default())
        .await
        .unwrap();
    assert_eq!(drain(&mut changes).await, ["+a=1", "+b=1", "a=1>2", "-b"]);
    let snapshot = store.snapshot();
    assert_eq!(snapshot.len(), 1);
    assert_eq!(snapshot.by_index("value", "2").count(), 1);
    assert_eq!(snapshot.by_index("value", "1").count(), 0);
    assert_eq!(snapshot.in_namespace("default").count(), 1);
    assert_eq!(snapshot.in_namespace("defaul").count(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_too_old_the_difference_is_told_and_nothing_twice() {
    let (api, client) = fake();
    client.create(&config_map("a", "1")).await.unwrap();
    client.create(&config_map("b", "1")).await.unwrap();
    let (store, mut changes) = informer(&client);
    assert!(store.wait_synced().await);
    assert_eq!(drain(&mut changes).await, ["+a=1", "+b=1"]);
    // All in one turn, so that the watch sees none of it.
    let key = ObjectKey::new("default", "b");
    let update = api.clone();
    update.set_fault(|_| None);
    client.update(&config_map("a", "2")).await.unwrap();
    client
        .delete::<ConfigMap>(&key, DeleteParameters::default())
        .await
        .unwrap();
    client.create(&config_map("c", "1")).await.unwrap();
    api.compact();
    let told = drain(&mut changes).await;
    let mut sorted = told.clone();
    sorted.sort();
    assert_eq!(sorted, ["+c=1", "-b", "a=1>2"], "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_the_same_name_is_told_as_deletion_and_creation() {
    let (mut writer, _store) = reflector::<ConfigMap>(Vec::new());
    let with = |uid: &str, revision: &str| {
        let mut map = config_map("a", uid);
        map.metadata.uid = Some(uid.into());
        map.metadata.resource_version = Some(revision.into());
        Arc::new(map)
    };
    writer.restart(vec![with("1", "1")]);
    let changes: Vec<_> = writer
        .restart(vec![with("2", "5")])
        .iter()
        .map(told)
        .collect();
    assert_eq!(changes, ["-a", "+a=2"]);
    assert!(
        writer.restart(vec![with("2", "5")]).is_empty(),
        "the same again is no change"
    );
}

/// An API whose list and watch follow a script.
struct Scripted {
    lists: AtomicUsize,
    list_failures: usize,
    watches: Mutex<Vec<Vec<Result<RawEvent, ApiError>>>>,
}

impl Scripted {
    fn new(list_failures: usize, watches: Vec<Vec<Result<RawEvent, ApiError>>>) -> Arc<Self> {
        Arc::new(Self {
            lists: AtomicUsize::new(0),
            list_failures,
            watches: Mutex::new(watches),
        })
    }

    fn refused<'a>() -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async { Err(error(405, "MethodNotAllowed", "read only")) })
    }
}

impl Api for Scripted {
    fn get<'a>(&'a self, _name: &'a ObjectName) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Self::refused()
    }

    fn list<'a>(&'a self, _: &'a Selection) -> BoxFuture<'a, Result<RawList, ApiError>> {
        let number = self.lists.fetch_add(1, Ordering::Relaxed);
        let failed = number < self.list_failures;
        Box::pin(async move {
            if failed {
                return Err(error(503, "ServiceUnavailable", "not yet"));
            }
            Ok(RawList {
                items: vec![Bytes::from_static(b"garbage")],
                resource_version: 10,
            })
        })
    }

    fn watch(&self, _: &Selection, _: u64) -> Result<RawWatch, ApiError> {
        let mut watches = self.watches.lock().unwrap();
        if watches.is_empty() {
            return Ok(futures::stream::pending().boxed());
        }
        Ok(futures::stream::iter(watches.remove(0)).boxed())
    }

    fn create<'a>(&'a self, _: &'a ObjectName, _: Bytes) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Self::refused()
    }

    fn update<'a>(&'a self, _: &'a ObjectName, _: Bytes) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Self::refused()
    }

    fn patch<'a>(
        &'a self,
        _: &'a ObjectName,
        _: PatchKind,
        _: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Self::refused()
    }

    fn delete<'a>(
        &'a self,
        _: &'a ObjectName,
        _: DeleteParameters,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Self::refused()
    }
}

fn added(name: &str, resource_version: u64) -> RawEvent {
    let object = serde_json::to_vec(&config_map(name, "1")).unwrap().into();
    RawEvent {
        kind: WatchKind::Added,
        object,
        resource_version,
    }
}

fn summary(event: &WatcherEvent<ConfigMap>) -> String {
    match event {
        WatcherEvent::Restarted(objects) => format!("restarted {}", objects.len()),
        WatcherEvent::Applied(object) => format!("applied {}", object.name()),
        WatcherEvent::Deleted(object) => format!("deleted {}", object.name()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_bad_object_an_error_and_an_end_do_not_stop_a_watcher() {
    let bad = RawEvent {
        kind: WatchKind::Added,
        object: Bytes::from_static(b"[]"),
        resource_version: 12,
    };
    let api = Scripted::new(
        0,
        vec![
            vec![Ok(added("a", 11)), Ok(bad), Ok(added("b", 13))],
            vec![Err(error(500, "InternalError", "broken"))],
            vec![Ok(added("c", 14)), Err(error(410, "Expired", "too old"))],
            vec![Ok(added("d", 15))],
        ],
    );
    let door: Arc<dyn Api> = api.clone();
    let mut watcher = Watcher::<ConfigMap>::new(door, Selection::all(ConfigMap::RESOURCE));
    let mut told = Vec::new();
    for _ in 0..6 {
        told.push(summary(&watcher.next().await));
    }
    let expected = [
        "restarted 0",
        "applied a",
        "applied b",
        "applied c",
        "restarted 0",
        "applied d",
    ];
    assert_eq!(told, expected);
    assert_eq!(
        api.lists.load(Ordering::Relaxed),
        2,
        "only too-old lists again"
    );
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_from_50_ms_to_10_s() {
    let api = Scripted::new(12, Vec::new());
    let mut watcher = Watcher::<ConfigMap>::new(api, Selection::all(ConfigMap::RESOURCE));
    let start = tokio::time::Instant::now();
    watcher.next().await;
    // 50 ms × (1 + 2 + … + 128) = 12.75 s, then 4 × 10 s.
    let elapsed = start.elapsed();
    assert!(
        (52_700..52_900).contains(&elapsed.as_millis()),
        "{elapsed:?}"
    );
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, u8),
    Delete(u8),
    Compact,
    Settle,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0_u8..4, 0_u8..9).prop_map(|(name, value)| Op::Put(name, value)),
        2 => (0_u8..4).prop_map(Op::Delete),
        1 => Just(Op::Compact),
        2 => Just(Op::Settle),
    ]
}

/// Runs operations; a copy built from the changes alone must equal the store and the API.
async fn check(ops: Vec<Op>) {
    let (api, client) = fake();
    let (store, mut changes) = informer(&client);
    let mut copy = BTreeMap::new();
    for op in ops.into_iter().chain([Op::Settle]) {
        match op {
            Op::Put(name, value) => {
                let map = config_map(&format!("m{name}"), &value.to_string());
                if client.update(&map).await.is_err() {
                    client.create(&map).await.unwrap();
                }
            }
            Op::Delete(name) => {
                let key = ObjectKey::new("default", &format!("m{name}"));
                let _ = client
                    .delete::<ConfigMap>(&key, DeleteParameters::default())
                    .await;
            }
            Op::Compact => api.compact(),
            Op::Settle => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                while let Ok(change) = changes.try_recv() {
                    apply(&mut copy, &change);
                }
                let (listed, _) = client.list::<ConfigMap>(None).await.unwrap();
                let listed: BTreeMap<_, _> = listed
                    .iter()
                    .map(|map| (map.name().to_owned(), value_of(map)))
                    .collect();
                let stored: BTreeMap<_, _> = store
                    .snapshot()
                    .iter()
                    .map(|map| (map.name().to_owned(), value_of(map)))
                    .collect();
                assert_eq!(copy, listed);
                assert_eq!(stored, listed);
            }
        }
    }
}

fn apply(copy: &mut BTreeMap<String, String>, change: &Change<ConfigMap>) {
    match change {
        Change::Added(new) => {
            assert_eq!(copy.insert(new.name().to_owned(), value_of(new)), None);
        }
        Change::Updated { old, new } => {
            let before = copy.insert(new.name().to_owned(), value_of(new));
            assert_eq!(before, Some(value_of(old)), "old is what was told before");
        }
        Change::Deleted(old) => assert!(copy.remove(old.name()).is_some()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn changes_alone_rebuild_what_the_api_holds(ops in prop::collection::vec(op(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(check(ops));
    }
}
