//! Clock, tracker, volumes and cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::{CgroupError, Cgroups, QosClass};
use swiftlet_model::clock::Clock;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::lifecycle::PodTracker;
use swiftlet_model::runtime::LinuxResources;
use swiftlet_model::volumes::{VolumeError, Volumes};

/// Tells tokio's time, which tests pause and turn.
#[derive(Debug)]
pub(crate) struct TestClock {
    start: tokio::time::Instant,
}

impl TestClock {
    pub(crate) fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn timestamp(&self) -> Timestamp {
        let base = Timestamp::from_second(1_700_000_000).unwrap();
        base + self.start.elapsed()
    }
}

/// Volumes, cgroups and the tracker: sets of pods.
#[derive(Debug, Default)]
pub(crate) struct FakeNode {
    pub(crate) volumes: Mutex<BTreeSet<PodUid>>,
    pub(crate) cgroups: Mutex<BTreeSet<PodUid>>,
    pub(crate) tracked: Mutex<BTreeSet<PodUid>>,
    pub(crate) logs: Mutex<BTreeSet<PodUid>>,
    /// How often volumes were brought up to date.
    pub(crate) refreshes: Mutex<usize>,
}

impl FakeNode {
    pub(crate) fn is_clean(&self, uid: &PodUid) -> bool {
        let has = |set: &Mutex<BTreeSet<PodUid>>| set.lock().unwrap().contains(uid);
        !has(&self.volumes) && !has(&self.cgroups) && !has(&self.tracked)
    }
}

impl PodTracker for FakeNode {
    fn track(&self, pod: &PodUid, _cgroup: &str) {
        self.tracked.lock().unwrap().insert(pod.clone());
    }

    fn untrack(&self, pod: &PodUid) {
        self.tracked.lock().unwrap().remove(pod);
    }
}

impl Volumes for FakeNode {
    fn set_up<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
    ) -> BoxFuture<'a, Result<BTreeMap<String, PathBuf>, VolumeError>> {
        async move {
            let uid = PodKey::of(pod).uid;
            self.logs.lock().unwrap().insert(uid.clone());
            self.volumes.lock().unwrap().insert(uid);
            Ok(BTreeMap::new())
        }
        .boxed()
    }

    fn refresh<'a>(&'a self, _pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), VolumeError>> {
        async {
            *self.refreshes.lock().unwrap() += 1;
            Ok(())
        }
        .boxed()
    }

    fn tear_down<'a>(
        &'a self,
        pod: &'a PodUid,
        logs: bool,
    ) -> BoxFuture<'a, Result<(), VolumeError>> {
        async move {
            if logs {
                self.logs.lock().unwrap().remove(pod);
            }
            self.volumes.lock().unwrap().remove(pod);
            Ok(())
        }
        .boxed()
    }

    fn pods_on_disk(&self) -> BoxFuture<'_, Result<Vec<PodUid>, VolumeError>> {
        async { Ok(self.volumes.lock().unwrap().iter().cloned().collect()) }.boxed()
    }
}

impl Cgroups for FakeNode {
    fn ensure_pod<'a>(
        &'a self,
        pod: &'a PodUid,
        qos: QosClass,
        _resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<String, CgroupError>> {
        async move {
            self.cgroups.lock().unwrap().insert(pod.clone());
            Ok(crate::cgroups::cgroup_path(pod, qos))
        }
        .boxed()
    }

    fn remove_pod<'a>(&'a self, pod: &'a PodUid) -> BoxFuture<'a, Result<(), CgroupError>> {
        async move {
            self.cgroups.lock().unwrap().remove(pod);
            Ok(())
        }
        .boxed()
    }

    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodUid>, CgroupError>> {
        async { Ok(self.cgroups.lock().unwrap().iter().cloned().collect()) }.boxed()
    }
}
