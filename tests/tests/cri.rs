//! The Runtime door against a real containerd.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use swiftlet_cgroup::PodCgroups;
use swiftlet_cri::Cri;
use swiftlet_model::cgroups::{Cgroups, QosClass};
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerId, ContainerName, PodKey, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerSecurity, ContainerState, ContainerStatus, LinuxResources,
    NamespaceOptions, PodSecurity, Runtime, RuntimeError, SandboxConfig, SandboxState, labels,
};
use swiftlet_tests::containerd::{Containerd, ContainerdOptions};
use swiftlet_tests::images;

const PAUSE: &str = "registry.local/pause:3.9";
const BUSYBOX: &str = "registry.local/busybox:1.35";

/// How long containerd may take for anything that a test waits for.
const LIMIT: Duration = Duration::from_secs(30);

/// Pods and cgroup roots of different tests have different names.
fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

/// A containerd with both images and a cgroup root, in a folder of its own. Fields are dropped in
/// order: the daemon ends before its cgroups and its folder go.
struct Machine {
    containerd: Containerd,
    cri: Cri,
    cgroups: TestCgroups,
    dir: tempfile::TempDir,
}

struct TestCgroups(PodCgroups);

impl Drop for TestCgroups {
    fn drop(&mut self) {
        // Tests hold a runtime already, and one cannot wait inside another.
        let cgroups = self.0.clone();
        let remove = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            runtime.block_on(cgroups.remove_all()).unwrap();
        };
        std::thread::spawn(remove).join().unwrap();
    }
}

impl Machine {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("cri").tempdir().unwrap();
        let options = ContainerdOptions {
            pause_image: PAUSE.into(),
            cni_conf_dir: dir.path().join("cni/conf"),
            cni_bin_dir: dir.path().join("cni/bin"),
        };
        let containerd = Containerd::start(dir.path(), &options).unwrap();
        let socket = Containerd::socket_in(dir.path());
        let folder = dir.path().join("images");
        let archives = [
            images::pause_archive(&folder, PAUSE).unwrap(),
            images::busybox_archive(&folder, BUSYBOX).unwrap(),
        ];
        images::import(&socket, &archives).unwrap();
        let root = format!("swiftlet-cri-{}-{}", std::process::id(), next());
        let cgroups = TestCgroups(PodCgroups::new(&root).unwrap());
        Self {
            containerd,
            cri: Cri::new(socket),
            cgroups,
            dir,
        }
    }

    /// A pod in the host's network with a log folder and a cgroup.
    async fn pod(&self) -> SandboxConfig {
        let mut pod = pod(self.dir.path(), &format!("uid-{}", next()));
        let limits = LinuxResources {
            cpu_shares: 2,
            ..LinuxResources::default()
        };
        let path = self
            .cgroups
            .0
            .ensure_pod(&pod.pod.uid, QosClass::BestEffort, &limits)
            .await;
        pod.cgroup_parent = path.unwrap();
        pod
    }

    async fn run(&self, pod: &SandboxConfig) -> SandboxId {
        self.cri
            .run_sandbox(pod, Deadline::after(LIMIT))
            .await
            .unwrap()
    }

    async fn start_container(
        &self,
        sandbox: &SandboxId,
        pod: &SandboxConfig,
        container: &ContainerConfig,
    ) -> ContainerId {
        std::fs::create_dir_all(pod.log_directory.join(container.name.as_str())).unwrap();
        let id = self
            .cri
            .create_container(sandbox, container, pod)
            .await
            .unwrap();
        self.cri.start_container(&id).await.unwrap();
        id
    }

    async fn exited(&self, id: &ContainerId) -> ContainerStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            let status = self.cri.container_status(id).await.unwrap();
            if status.state == ContainerState::Exited {
                return status;
            }
            assert!(Instant::now() < deadline, "still {:?}", status.state);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn remove(&self, sandbox: &SandboxId) {
        let pod = self.cri.sandbox_status(sandbox).await.unwrap().pod;
        while let Err(error) = self.cri.stop_sandbox(sandbox).await {
            assert!(error.is_retryable(), "{error}");
        }
        self.cri.remove_sandbox(sandbox).await.unwrap();
        self.cgroups.0.remove_pod(&pod.uid).await.unwrap();
    }
}

fn pod(dir: &Path, uid: &str) -> SandboxConfig {
    let log_directory: PathBuf = dir.join("logs").join(uid);
    std::fs::create_dir_all(&log_directory).unwrap();
    let labels = [
        (labels::POD_UID, uid),
        (labels::POD_NAME, "web"),
        (labels::POD_NAMESPACE, "default"),
    ];
    SandboxConfig {
        pod: PodKey {
            namespace: "default".into(),
            name: "web".into(),
            uid: PodUid::from(uid),
        },
        attempt: 0,
        hostname: "web".into(),
        log_directory,
        labels: labels.map(|(key, value)| (key.into(), value.into())).into(),
        annotations: BTreeMap::new(),
        cgroup_parent: String::new(),
        dns: None,
        port_mappings: Vec::new(),
        namespaces: NamespaceOptions {
            host_network: true,
            ..NamespaceOptions::default()
        },
        sysctls: BTreeMap::new(),
        runtime_handler: String::new(),
        security: PodSecurity::default(),
    }
}

fn container(pod: &SandboxConfig, script: &str) -> ContainerConfig {
    let mut labels = pod.labels.clone();
    labels.insert(labels::CONTAINER_NAME.into(), "main".into());
    ContainerConfig {
        name: ContainerName::from("main"),
        attempt: 0,
        image: BUSYBOX.into(),
        command: ["sh", "-c", script].map(str::to_owned).into(),
        args: Vec::new(),
        working_dir: String::new(),
        env: vec![("GREETING".into(), "hello".into())],
        mounts: Vec::new(),
        labels,
        annotations: BTreeMap::from([(labels::CONTAINER_HASH.into(), "beef".into())]),
        log_path: "main/0.log".into(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources {
            cpu_shares: 2,
            oom_score_adj: 1000,
            ..Default::default()
        },
        security: ContainerSecurity::default(),
    }
}

#[tokio::test]
async fn a_container_runs_logs_and_its_end_is_told_with_code_and_times() {
    let machine = Machine::start();
    let cri = &machine.cri;
    assert_eq!(cri.version().await.unwrap().name, "containerd");
    assert!(cri.status().await.unwrap().runtime_ready);
    assert!(
        cri.image(BUSYBOX)
            .await
            .unwrap()
            .unwrap()
            .id
            .starts_with("sha256:")
    );
    assert_eq!(cri.image("registry.local/nothing:1").await.unwrap(), None);

    let pod = machine.pod().await;
    let sandbox = machine.run(&pod).await;
    assert_eq!(
        cri.sandbox_status(&sandbox).await.unwrap().state,
        SandboxState::Ready
    );
    let config = container(&pod, "echo $GREETING; exit 7");
    let id = machine.start_container(&sandbox, &pod, &config).await;
    let status = machine.exited(&id).await;
    let exit = status.exit.unwrap();
    assert_eq!(
        (exit.code, exit.oom_killed, exit.reason.as_str()),
        (7, false, "Error")
    );
    assert!(status.started_at.unwrap() <= exit.at && status.created_at <= exit.at);
    assert_eq!(
        (status.sandbox, status.spec_hash),
        (sandbox.clone(), Some(0xbeef))
    );
    let log = std::fs::read_to_string(pod.log_directory.join("main/0.log")).unwrap();
    assert!(log.contains("stdout F hello"), "{log}");

    let seen = cri.pod(&pod.pod.uid).await.unwrap();
    assert_eq!(seen.pod, pod.pod);
    assert_eq!(seen.newest("main").unwrap().exit.as_ref().unwrap().code, 7);
    let listed = cri.list_pods().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        listed[0].newest("main").unwrap().state,
        ContainerState::Exited
    );
    machine.remove(&sandbox).await;
    assert!(cri.list_pods().await.unwrap().is_empty());
}

#[tokio::test]
async fn stopping_and_removing_twice_is_success() {
    let machine = Machine::start();
    let cri = &machine.cri;
    let pod = machine.pod().await;
    let sandbox = machine.run(&pod).await;
    let config = container(&pod, "trap 'exit 3' TERM; while :; do sleep 0.05; done");
    let id = machine.start_container(&sandbox, &pod, &config).await;
    for _ in 0..2 {
        cri.stop_container(&id, Duration::from_secs(10))
            .await
            .unwrap();
    }
    assert_eq!(machine.exited(&id).await.exit.unwrap().code, 3);
    for _ in 0..2 {
        cri.remove_container(&id).await.unwrap();
    }
    for _ in 0..2 {
        cri.stop_sandbox(&sandbox).await.unwrap();
    }
    for _ in 0..2 {
        cri.remove_sandbox(&sandbox).await.unwrap();
    }
    cri.stop_sandbox(&sandbox).await.unwrap();
    cri.stop_container(&id, Duration::ZERO).await.unwrap();
    assert!(cri.container_status(&id).await.unwrap_err().is_not_found());
}

#[tokio::test]
async fn what_an_earlier_call_made_is_adopted_by_the_same_attempt() {
    let machine = Machine::start();
    let cri = &machine.cri;
    let mut pod = machine.pod().await;
    let sandbox = machine.run(&pod).await;
    assert_eq!(machine.run(&pod).await, sandbox);
    let config = container(&pod, "sleep 60");
    let id = machine.start_container(&sandbox, &pod, &config).await;
    assert_eq!(
        cri.create_container(&sandbox, &config, &pod).await.unwrap(),
        id
    );
    cri.start_container(&id).await.unwrap();

    cri.stop_sandbox(&sandbox).await.unwrap();
    let refused = cri
        .run_sandbox(&pod, Deadline::after(LIMIT))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RuntimeError::AlreadyExists { .. }),
        "{refused}"
    );
    pod.attempt = 1;
    let second = machine.run(&pod).await;
    let seen = cri.pod(&pod.pod.uid).await.unwrap();
    let ids: Vec<_> = seen.sandboxes.iter().map(|it| it.id.clone()).collect();
    assert_eq!(ids, [second.clone(), sandbox.clone()]);
    machine.remove(&sandbox).await;
    machine.remove(&second).await;
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_of_the_start() {
    let machine = Machine::start();
    let pod = machine.pod().await;
    let sandbox = machine.run(&pod).await;
    let mut config = container(&pod, "");
    config.command = vec!["/no/such/program".into()];
    let id = machine
        .cri
        .create_container(&sandbox, &config, &pod)
        .await
        .unwrap();
    for _ in 0..2 {
        let error = machine.cri.start_container(&id).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Refused { .. }), "{error}");
    }
    let exit = machine.exited(&id).await.exit.unwrap();
    assert_eq!((exit.code, exit.reason.as_str()), (128, "StartError"));
    machine.remove(&sandbox).await;
}

#[tokio::test]
async fn containers_outlive_a_crash_of_the_runtime_and_the_client_finds_it_again() {
    let mut machine = Machine::start();
    let pod = machine.pod().await;
    let sandbox = machine.run(&pod).await;
    let config = container(&pod, "sleep 60");
    let id = machine.start_container(&sandbox, &pod, &config).await;
    let before = machine.cri.container_status(&id).await.unwrap();

    machine.containerd.kill_daemon().unwrap();
    let asked = Instant::now();
    let error = machine.cri.version().await.unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable { .. }), "{error}");
    assert!(
        asked.elapsed() < Duration::from_secs(1),
        "took {:?}",
        asked.elapsed()
    );

    machine.containerd.restart().unwrap();
    let deadline = Instant::now() + LIMIT;
    let after = loop {
        match machine.cri.container_status(&id).await {
            Ok(status) => break status,
            Err(error) if error.is_retryable() && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(after, before);
    machine.remove(&sandbox).await;
}

#[tokio::test]
async fn a_runtime_that_accepts_and_never_answers_runs_into_the_callers_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("silent.sock");
    let _listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let cri = Cri::new(socket);
    let asked = Instant::now();
    let limit = Duration::from_millis(200);
    let error = cri
        .run_sandbox(&pod(dir.path(), "silent"), Deadline::after(limit))
        .await;
    let error = error.unwrap_err();
    assert!(
        matches!(
            error,
            RuntimeError::Timeout {
                call: "RunPodSandbox",
                ..
            }
        ),
        "{error}"
    );
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "took {:?}",
        asked.elapsed()
    );
}
