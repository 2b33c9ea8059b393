//! A runtime of which lists, statuses, events and first processes work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::process::ExitStatusExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerId, PodKey, PodUid, SandboxId};
use swiftlet_model::lifecycle::KernelExit;
use swiftlet_model::runtime::{
    ContainerConfig, ContainerEvent, ContainerEventKind, ContainerExit, ContainerState,
    ContainerStatus, ExecOutput, FirstProcess, Image, ImageAuth, ImageFilesystem, LinuxResources,
    ProcessOf, Runtime, RuntimeError, RuntimeEvents, RuntimePod, RuntimeStatus, RuntimeVersion,
    SandboxConfig, SandboxStatus,
};
use tokio::sync::mpsc;

use crate::container::{Isolation, TestPod};

/// Containers as a list, and as processes where a test runs some.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<PodUid, RuntimePod>,
    processes: HashMap<ContainerId, u32>,
    /// Containers of which it never tells the first process.
    hangs: HashSet<ContainerId>,
    /// How often it was asked for one of those.
    asked_in_vain: usize,
    /// It has no stream of events.
    mute: bool,
    /// It takes calls and answers none.
    frozen: bool,
    /// Its process has no number here.
    elsewhere: bool,
    /// Lists that it is to refuse.
    refused_lists: usize,
    /// Lists of everything, and of one pod, that it has answered.
    lists: (usize, usize),
    streams: Vec<mpsc::UnboundedSender<Result<ContainerEvent, RuntimeError>>>,
    streams_opened: usize,
}

impl FakeRuntime {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no test panics while it holds this")
    }

    /// From now on the runtime has one pod with these containers.
    pub(crate) fn set(&self, containers: &[(&str, ContainerState)]) {
        let containers = containers.iter();
        let containers = containers.map(|(id, state)| status(id, state.clone()));
        let mut pod = RuntimePod::empty(key("u".into()));
        pod.containers = containers.collect();
        self.state().pods = BTreeMap::from([("u".into(), pod)]);
    }

    /// Nobody is told the first process of this container.
    pub(crate) fn hang(&self, id: &str) {
        self.state().hangs.insert(id.into());
    }

    /// From now on it takes calls, and answers none.
    pub(crate) fn freeze(&self) {
        self.state().frozen = true;
    }

    /// From now on it runs in another pid namespace.
    pub(crate) fn move_away(&self) {
        self.state().elsewhere = true;
    }

    /// Refuses so many lists.
    pub(crate) fn refuse_lists(&self, count: usize) {
        self.state().refused_lists = count;
    }

    /// How many lists of everything, and of one pod, were answered.
    pub(crate) fn lists(&self) -> (usize, usize) {
        self.state().lists
    }

    /// From now on the runtime has one container, which it says runs as this process.
    pub(crate) fn claim(&self, id: &str, process: u32) {
        self.set(&[(id, ContainerState::Running)]);
        self.state().processes.insert(id.into(), process);
    }

    pub(crate) fn asked_in_vain(&self) -> usize {
        self.state().asked_in_vain
    }

    /// Every stream breaks, and no other can be opened.
    pub(crate) fn fall_mute(&self) {
        let mut state = self.state();
        state.mute = true;
        state.streams.clear();
    }

    /// A container is in no list any more, and nobody is told.
    pub(crate) fn lose(&self, id: &str) {
        for pod in self.state().pods.values_mut() {
            pod.containers.retain(|one| one.id.as_str() != id);
        }
    }

    /// Every stream breaks.
    pub(crate) fn break_streams(&self) {
        self.state().streams.clear();
    }

    pub(crate) fn streams(&self) -> usize {
        self.state().streams.len()
    }

    pub(crate) fn streams_opened(&self) -> usize {
        self.state().streams_opened
    }

    pub(crate) fn find(&self, id: &ContainerId) -> Option<ContainerStatus> {
        let state = self.state();
        let mut all = state.pods.values().flat_map(|pod| &pod.containers);
        all.find(|one| one.id == *id).cloned()
    }

    /// Runs a program as a container; its end is recorded and told, as its start is.
    pub(crate) fn run(self: &Arc<Self>, pod: &TestPod, id: &str, script: &str) {
        let container = pod.container(id);
        let mut process = container.start(Isolation::HostPids, script);
        let number = u32::try_from(process.id().as_raw()).expect("a process id");
        while !container.holds(process.id()) && !process.has_ended() {
            std::thread::yield_now();
        }
        if let Some(program) = script.strip_prefix("exec ") {
            let program = program.split(' ').next().unwrap_or_default();
            while !is_program(number, program) && !process.has_ended() {
                std::thread::yield_now();
            }
        }
        self.record(&pod.uid, status(id, ContainerState::Running));
        self.state().processes.insert(id.into(), number);
        self.tell(&pod.uid, id, ContainerEventKind::Started, None);
        let (runtime, uid, id) = (self.clone(), pod.uid.clone(), id.to_owned());
        std::thread::spawn(move || {
            let ended = process.wait();
            let signal = ended.signal();
            let code = signal.map_or_else(|| ended.code().unwrap_or(0), |signal| 128 + signal);
            let mut record = status(&id, ContainerState::Exited);
            record.exit = Some(ContainerExit {
                code,
                oom_killed: false,
                at: Timestamp::now(),
                reason: String::new(),
                message: String::new(),
            });
            runtime.record(&uid, record);
            let exit = KernelExit {
                code,
                signal: 0,
                oom_killed: false,
            };
            runtime.tell(&uid, &id, ContainerEventKind::Stopped, Some(exit));
        });
    }

    /// Waits until this program holds a container's first process in an epoll instance.
    pub(crate) async fn watched(&self, id: &str) {
        let process = self.state().processes[&ContainerId::from(id)];
        while !is_watched(process) {
            tokio::task::yield_now().await;
        }
    }

    /// Kills a container's first process.
    pub(crate) fn kill(&self, id: &str) {
        let process = self.state().processes[&ContainerId::from(id)];
        let process = Pid::from_raw(i32::try_from(process).expect("a process id"));
        kill(process, Signal::SIGKILL).expect("the container can be killed");
    }

    fn record(&self, pod: &PodUid, status: ContainerStatus) {
        let mut state = self.state();
        let pod = state.pods.entry(pod.clone());
        let pod = pod.or_insert_with_key(|uid| RuntimePod::empty(key(uid.clone())));
        pod.containers.retain(|one| one.id != status.id);
        pod.containers.push(status);
    }

    /// Sends an event to all that listen.
    pub(crate) fn tell(
        &self,
        pod: &PodUid,
        id: &str,
        kind: ContainerEventKind,
        exit: Option<KernelExit>,
    ) {
        self.tell_at(pod, id, kind, exit, Timestamp::now());
    }

    pub(crate) fn tell_at(
        &self,
        pod: &PodUid,
        id: &str,
        kind: ContainerEventKind,
        exit: Option<KernelExit>,
        at: Timestamp,
    ) {
        let event = ContainerEvent {
            container: id.into(),
            pod: Some(pod.clone()),
            kind,
            at,
            exit,
        };
        let mut state = self.state();
        state
            .streams
            .retain(|stream| stream.send(Ok(event.clone())).is_ok());
    }
}

impl RuntimeEvents for FakeRuntime {
    fn container_events(&self) -> BoxStream<'static, Result<ContainerEvent, RuntimeError>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        if state.mute {
            let call = "GetContainerEvents";
            sender
                .send(Err(RuntimeError::Unsupported { call }))
                .expect("it is listened to");
        } else {
            state.streams.push(sender);
            state.streams_opened += 1;
        }
        let events = futures::stream::unfold(receiver, |mut receiver| async {
            receiver.recv().await.map(|event| (event, receiver))
        });
        events.boxed()
    }

    fn first_process<'a>(
        &'a self,
        id: &'a ContainerId,
        _: ProcessOf,
    ) -> BoxFuture<'a, Result<FirstProcess, RuntimeError>> {
        let found = self.find(id);
        let mut state = self.state();
        if state.hangs.contains(id) {
            state.asked_in_vain += 1;
            return Box::pin(std::future::pending());
        }
        let process = state.processes.get(id).copied();
        let first = match found.map(|found| found.state) {
            Some(ContainerState::Running) => {
                process.map_or(FirstProcess::Untold, FirstProcess::Running)
            }
            Some(ContainerState::Created) => FirstProcess::NotYet,
            _ => FirstProcess::Ended,
        };
        Box::pin(async move { Ok(first) })
    }

    fn listed_pod<'a>(
        &'a self,
        pod: &'a PodUid,
    ) -> BoxFuture<'a, Result<Vec<RuntimePod>, RuntimeError>> {
        let mut state = self.state();
        state.lists.1 += 1;
        let found = state.pods.get(pod).cloned();
        Box::pin(async move { Ok(found.into_iter().collect()) })
    }

    fn daemon(&self) -> BoxFuture<'_, Result<Option<u32>, RuntimeError>> {
        let here = (!self.state().elsewhere).then(std::process::id);
        Box::pin(async move { Ok(here) })
    }
}

/// By the kernel's word on this program's descriptors (Documentation/filesystems/proc.rst).
fn is_watched(process: u32) -> bool {
    let folder = std::fs::read_dir("/proc/self/fdinfo").expect("there are descriptors");
    let names = folder.flatten().map(|entry| entry.path());
    // One that is closed meanwhile has no words.
    let words = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    let all: Vec<_> = names.map(|path| (words(&path), path)).collect();
    let has = |text: &str, key: &str, number: &str| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(key));
        values.any(|value| value.split_whitespace().next() == Some(number))
    };
    let holds = |text: &str| has(text, "Pid:", &process.to_string());
    let held = all.iter().filter(|(text, _)| holds(text));
    let mut numbers = held.filter_map(|(_, path)| path.file_name()?.to_str());
    numbers.any(|number| all.iter().any(|(text, _)| has(text, "tfd:", number)))
}

/// Whether the process has become the container's own program.
fn is_program(process: u32, name: &str) -> bool {
    let found = std::fs::read_to_string(format!("/proc/{process}/comm"));
    found.is_ok_and(|found| found.trim() == name)
}

fn key(uid: PodUid) -> PodKey {
    PodKey {
        namespace: "n".into(),
        name: "p".into(),
        uid,
    }
}

fn status(id: &str, state: ContainerState) -> ContainerStatus {
    ContainerStatus {
        id: id.into(),
        name: "c".into(),
        sandbox: "s".into(),
        attempt: 0,
        state,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        exit: None,
        image: String::new(),
        image_id: String::new(),
        spec_hash: None,
    }
}

fn refuse<T: Send + 'static>(call: &'static str) -> BoxFuture<'static, Result<T, RuntimeError>> {
    Box::pin(async move {
        Err(RuntimeError::Refused {
            call,
            message: "only lists".into(),
        })
    })
}

impl Runtime for FakeRuntime {
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>> {
        if self.state().frozen {
            return Box::pin(std::future::pending());
        }
        let version = RuntimeVersion {
            name: "containerd".into(),
            version: "1.7.24".into(),
            api_version: "v1".into(),
        };
        Box::pin(async move { Ok(version) })
    }
    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>> {
        refuse("status")
    }
    fn run_sandbox<'a>(
        &'a self,
        _: &'a SandboxConfig,
        _: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>> {
        refuse("run_sandbox")
    }
    fn stop_sandbox<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("stop_sandbox")
    }
    fn remove_sandbox<'a>(&'a self, _: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_sandbox")
    }
    fn sandbox_status<'a>(
        &'a self,
        _: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>> {
        refuse("sandbox_status")
    }
    fn create_container<'a>(
        &'a self,
        _: &'a SandboxId,
        _: &'a ContainerConfig,
        _: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>> {
        refuse("create_container")
    }
    fn start_container<'a>(
        &'a self,
        _: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("start_container")
    }
    fn stop_container<'a>(
        &'a self,
        _: &'a ContainerId,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("stop_container")
    }
    fn remove_container<'a>(
        &'a self,
        _: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_container")
    }
    fn container_status<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>> {
        let found = self.find(id);
        Box::pin(async move {
            found.ok_or_else(|| RuntimeError::NotFound {
                call: "container_status",
                message: id.to_string(),
            })
        })
    }
    fn pod<'a>(&'a self, _: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>> {
        refuse("pod")
    }
    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>> {
        let mut state = self.state();
        if state.refused_lists > 0 {
            state.refused_lists -= 1;
            return refuse("list_pods");
        }
        state.lists.0 += 1;
        let pods = state.pods.values().cloned().collect();
        Box::pin(async move { Ok(pods) })
    }
    fn exec_sync<'a>(
        &'a self,
        _: &'a ContainerId,
        _: &'a [String],
        _: Duration,
    ) -> BoxFuture<'a, Result<ExecOutput, RuntimeError>> {
        refuse("exec_sync")
    }
    fn update_resources<'a>(
        &'a self,
        _: &'a ContainerId,
        _: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("update_resources")
    }
    fn reopen_log<'a>(&'a self, _: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("reopen_log")
    }
    fn image<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>> {
        refuse("image")
    }
    fn list_images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        refuse("list_images")
    }
    fn pull_image<'a>(
        &'a self,
        _: &'a str,
        _: Option<&'a ImageAuth>,
        _: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        refuse("pull_image")
    }
    fn remove_image<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        refuse("remove_image")
    }
    fn image_filesystem(&self) -> BoxFuture<'_, Result<Option<ImageFilesystem>, RuntimeError>> {
        refuse("image_filesystem")
    }
}
