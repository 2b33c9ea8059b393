//! Clock, tracker, volumes and cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::{CgroupError, Cgroups, QosClass};
use swiftlet_model::clock::Clock;
use swiftlet_model::ids::{ContainerId, PodKey, PodUid};
use swiftlet_model::lifecycle::PodTracker;
use swiftlet_model::runtime::{LinuxResources, ProcessOf};
use swiftlet_model::volumes::{PodFiles, SubPath, VolumeError, Volumes};

use crate::cpu_manager::Cpu;
use crate::testing::logs::FakeLogs;
use crate::testing::probes::FakeProbes;
use crate::testing::stats::{FakeCheckpoints, FakeCredentials, FakeShutdown, FakeStats};

/// Tells tokio's time, which tests pause and turn.
#[derive(Debug)]
pub(crate) struct TestClock {
    start: tokio::time::Instant,
    /// How often it was looked at.
    pub(crate) looks: AtomicUsize,
}

impl TestClock {
    pub(crate) fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            looks: AtomicUsize::new(0),
        }
    }
}

impl Clock for TestClock {
    fn now(&self) -> Instant {
        self.looks.fetch_add(1, Ordering::Relaxed);
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
    /// What the tracker was told to run.
    pub(crate) told_running: Mutex<Vec<(PodUid, ContainerId, ProcessOf)>>,
    pub(crate) logs: Mutex<BTreeSet<PodUid>>,
    /// The machine's CPUs, if the kubelet gives them out one by one.
    pub(crate) cpus: Mutex<Vec<Cpu>>,
    /// Volumes are never made, nor brought up to date.
    pub(crate) volumes_hang: Mutex<bool>,
    /// How often volumes were brought up to date.
    pub(crate) refreshes: Mutex<usize>,
    /// How long the volumes' tokens are good.
    pub(crate) refresh_due: Mutex<Option<Duration>>,
    /// What the pods' volumes lack until they are refreshed.
    pub(crate) lacking: Mutex<Option<String>>,
    /// The `/etc/hosts` that were written last.
    pub(crate) hosts: Mutex<BTreeMap<PodUid, String>>,
    /// How often writing one fails before it works.
    pub(crate) hosts_failures: Mutex<usize>,
    /// What containers wrote as their last words, by container and attempt.
    pub(crate) messages: Mutex<BTreeMap<(String, u32), String>>,
    /// Ends of logs, by path.
    pub(crate) log_tails: Mutex<BTreeMap<PathBuf, String>>,
    /// Files of logs.
    pub(crate) log_files: Arc<FakeLogs>,
    /// The node's own credentials for registries.
    pub(crate) credentials: Arc<FakeCredentials>,
    /// What answers probes.
    pub(crate) probes: Arc<FakeProbes>,
    /// What the node has left.
    pub(crate) stats: Arc<FakeStats>,
    pub(crate) checkpoints: Arc<FakeCheckpoints>,
    pub(crate) shutdown: Arc<FakeShutdown>,
    /// Limits that were written last, by pod.
    pub(crate) pod_limits: Mutex<BTreeMap<PodUid, LinuxResources>>,
    /// `cpu.shares` of the burstable class, and limits of all pods, as written last.
    pub(crate) class_shares: Mutex<Option<i64>>,
    pub(crate) all_pods_limits: Mutex<Option<LinuxResources>>,
    /// How often writing either of these fails before it works.
    pub(crate) root_failures: Mutex<usize>,
}

impl FakeNode {
    pub(crate) fn is_clean(&self, uid: &PodUid) -> bool {
        let has = |set: &Mutex<BTreeSet<PodUid>>| set.lock().unwrap().contains(uid);
        !has(&self.volumes) && !has(&self.cgroups) && !has(&self.tracked)
    }

    async fn hang_volumes(&self) {
        let hangs = *self.volumes_hang.lock().unwrap();
        if hangs {
            std::future::pending::<()>().await;
        }
    }

    fn fail_root(&self) -> Result<(), CgroupError> {
        let mut failures = self.root_failures.lock().unwrap();
        let Some(left) = failures.checked_sub(1) else {
            return Ok(());
        };
        *failures = left;
        Err(CgroupError {
            path: "kubepods".to_owned(),
            operation: "write",
            cause: "busy".to_owned(),
        })
    }
}

impl PodTracker for FakeNode {
    fn track(&self, pod: &PodUid, _cgroup: &str) {
        self.tracked.lock().unwrap().insert(pod.clone());
    }

    fn untrack(&self, pod: &PodUid) {
        self.tracked.lock().unwrap().remove(pod);
    }

    fn runs(&self, pod: &PodUid, container: &ContainerId, process: ProcessOf) {
        let told = (pod.clone(), container.clone(), process);
        self.told_running.lock().unwrap().push(told);
    }
}

impl Volumes for FakeNode {
    fn set_up<'a>(
        &'a self,
        pod: &'a Arc<Pod>,
    ) -> BoxFuture<'a, Result<BTreeMap<String, PathBuf>, VolumeError>> {
        async move {
            self.hang_volumes().await;
            let uid = PodKey::of(pod).uid;
            self.logs.lock().unwrap().insert(uid.clone());
            self.volumes.lock().unwrap().insert(uid);
            let spec = pod.spec.as_ref();
            let volumes = spec
                .and_then(|spec| spec.volumes.as_ref())
                .into_iter()
                .flatten();
            let place = |name: &str| PathBuf::from(format!("/volumes/{name}"));
            Ok(volumes
                .map(|one| (one.name.clone(), place(&one.name)))
                .collect())
        }
        .boxed()
    }

    fn refresh<'a>(&'a self, _pod: &'a Arc<Pod>) -> BoxFuture<'a, Result<(), VolumeError>> {
        async {
            self.hang_volumes().await;
            *self.refreshes.lock().unwrap() += 1;
            *self.lacking.lock().unwrap() = None;
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

    fn sub_path<'a>(
        &'a self,
        pod: &'a PodUid,
        mount: &'a SubPath,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        async move {
            let (volume, part) = (&mount.volume, &mount.sub_path);
            Ok(PathBuf::from(format!("/pods/{pod}/sub/{volume}/{part}")))
        }
        .boxed()
    }

    fn refresh_due(&self, _pod: &PodUid) -> Option<Duration> {
        *self.refresh_due.lock().unwrap()
    }

    fn lacking(&self, _pod: &PodUid) -> Option<String> {
        self.lacking.lock().unwrap().clone()
    }

    fn pods_on_disk(&self) -> BoxFuture<'_, Result<Vec<PodUid>, VolumeError>> {
        async { Ok(self.volumes.lock().unwrap().iter().cloned().collect()) }.boxed()
    }
}

impl PodFiles for FakeNode {
    fn hosts_path(&self, pod: &PodUid) -> PathBuf {
        PathBuf::from(format!("/pods/{pod}/etc-hosts"))
    }

    fn hosts_file<'a>(
        &'a self,
        pod: &'a PodUid,
        content: &'a str,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        async move {
            let mut failures = self.hosts_failures.lock().unwrap();
            if let Some(left) = failures.checked_sub(1) {
                *failures = left;
                return Err(VolumeError::BadSubPath("disk full".into()));
            }
            let mut hosts = self.hosts.lock().unwrap();
            hosts.insert(pod.clone(), content.to_owned());
            Ok(PathBuf::from(format!("/pods/{pod}/etc-hosts")))
        }
        .boxed()
    }

    fn node_hosts(&self) -> BoxFuture<'_, Result<String, VolumeError>> {
        async { Ok("127.0.0.1\tlocalhost\n".to_owned()) }.boxed()
    }

    fn termination_log<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        async move {
            let path = format!("/pods/{pod}/containers/{container}/{attempt}");
            Ok(PathBuf::from(path))
        }
        .boxed()
    }

    fn termination_message<'a>(
        &'a self,
        _pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
        _bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>> {
        async move {
            let messages = self.messages.lock().unwrap();
            let message = messages.get(&(container.to_owned(), attempt)).cloned();
            Ok(message.unwrap_or_default())
        }
        .boxed()
    }

    fn log_tail<'a>(
        &'a self,
        log: &'a Path,
        _lines_max: usize,
        _bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>> {
        async move {
            Ok(self
                .log_tails
                .lock()
                .unwrap()
                .get(log)
                .cloned()
                .unwrap_or_default())
        }
        .boxed()
    }
}

impl Cgroups for FakeNode {
    fn ensure_pod<'a>(
        &'a self,
        pod: &'a PodUid,
        qos: QosClass,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<String, CgroupError>> {
        async move {
            let mut limits = self.pod_limits.lock().unwrap();
            limits.insert(pod.clone(), resources.clone());
            drop(limits);
            self.cgroups.lock().unwrap().insert(pod.clone());
            Ok(crate::cgroups::cgroup_path(pod, qos))
        }
        .boxed()
    }

    fn limit_all_pods<'a>(
        &'a self,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), CgroupError>> {
        async move {
            self.fail_root()?;
            *self.all_pods_limits.lock().unwrap() = Some(resources.clone());
            Ok(())
        }
        .boxed()
    }

    fn class_shares(
        &self,
        qos: QosClass,
        cpu_shares: i64,
    ) -> BoxFuture<'_, Result<(), CgroupError>> {
        async move {
            assert_eq!(qos, QosClass::Burstable);
            self.fail_root()?;
            *self.class_shares.lock().unwrap() = Some(cpu_shares);
            Ok(())
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
