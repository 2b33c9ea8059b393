//! A container runtime in memory, with failures on demand.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use swiftlet_model::clock::{Clock, Deadline};
use swiftlet_model::ids::{ContainerId, PodUid, SandboxId};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerState, ContainerStatus, ExecOutput, Image, ImageAuth,
    ImageFilesystem, LinuxResources, Runtime, RuntimeError, RuntimePod, RuntimeStatus,
    RuntimeVersion, SandboxConfig, SandboxState, SandboxStatus,
};

use crate::testing::node::TestClock;
use crate::testing::runtime::state::end;

mod state;

pub(crate) use state::{Fault, Moment, State};

/// The runtime.
#[derive(Debug)]
pub(crate) struct FakeRuntime {
    pub(crate) state: Mutex<State>,
    clock: TestClock,
    /// How long calls with effects take.
    delay: Duration,
}

impl FakeRuntime {
    pub(crate) fn new(delay: Duration) -> Self {
        let state = State {
            images: vec!["busybox".to_owned()],
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            clock: TestClock::new(),
            delay,
        }
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.state.lock().unwrap().calls.clone()
    }

    pub(crate) fn container(&self, name: &str) -> ContainerStatus {
        let state = self.state.lock().unwrap();
        let mut all = state
            .containers
            .iter()
            .filter(|one| one.name.as_str() == name);
        let first = all.next().unwrap_or_else(|| panic!("no container {name}"));
        all.fold(first, |newest, one| {
            if one.attempt > newest.attempt {
                one
            } else {
                newest
            }
        })
        .clone()
    }

    /// Ends a running container; false if it does not run.
    pub(crate) fn kill(&self, id: &ContainerId, code: i32) -> bool {
        let at = self.clock.timestamp();
        let mut state = self.state.lock().unwrap();
        let found = state.containers.iter_mut().find(|one| one.id == *id);
        let Some(container) = found.filter(|one| one.state == ContainerState::Running) else {
            return false;
        };
        end(container, code, at);
        true
    }

    /// Waits this long at most for a container's end, which another call may bring about.
    async fn until_ended(&self, id: &ContainerId, limit: Duration) {
        let end = tokio::time::Instant::now() + limit;
        let runs = || {
            let state = self.state.lock().unwrap();
            let mut all = state.containers.iter();
            all.any(|one| one.id == *id && one.state == ContainerState::Running)
        };
        while tokio::time::Instant::now() < end && runs() {
            let second = tokio::time::Instant::now() + Duration::from_secs(1);
            tokio::time::sleep_until(second.min(end)).await;
        }
    }

    /// Runs `effect` after the delay, unless a fault says otherwise.
    async fn call<T>(
        &self,
        name: String,
        effect: impl FnOnce(&mut State, Timestamp) -> Result<T, RuntimeError>,
    ) -> Result<T, RuntimeError> {
        tokio::time::sleep(self.delay).await;
        let at = self.clock.timestamp();
        let mut state = self.state.lock().unwrap();
        let fault = state.faults.pop_front().flatten();
        if state.down || fault == Some(Fault::Unavailable) {
            return Err(unavailable());
        }
        if fault == Some(Fault::Refused) {
            return Err(RuntimeError::Refused {
                call: "fake",
                message: "refused".into(),
            });
        }
        state.calls.push(name);
        let result = effect(&mut state, at);
        if fault == Some(Fault::TimeoutAfterEffect) {
            return Err(RuntimeError::Timeout {
                call: "fake",
                limit_ms: 1,
            });
        }
        result
    }
}

fn removable(state: &State) -> Result<(), RuntimeError> {
    if state.removal_fails {
        return Err(unavailable());
    }
    Ok(())
}

fn unavailable() -> RuntimeError {
    RuntimeError::Unavailable {
        socket: PathBuf::from("fake"),
        cause: "down".into(),
    }
}

fn not_found(id: &str) -> RuntimeError {
    RuntimeError::NotFound {
        call: "fake",
        message: id.to_owned(),
    }
}

impl Runtime for FakeRuntime {
    fn version(&self) -> BoxFuture<'_, Result<RuntimeVersion, RuntimeError>> {
        let down = self.state.lock().unwrap().down;
        let version = RuntimeVersion {
            name: "fakerd".into(),
            version: "1".into(),
            api_version: "v1".into(),
        };
        async move {
            if down {
                Err(unavailable())
            } else {
                Ok(version)
            }
        }
        .boxed()
    }

    fn status(&self) -> BoxFuture<'_, Result<RuntimeStatus, RuntimeError>> {
        let down = self.state.lock().unwrap().down;
        let status = RuntimeStatus {
            runtime_ready: true,
            network_ready: true,
            message: String::new(),
        };
        async move { if down { Err(unavailable()) } else { Ok(status) } }.boxed()
    }

    fn run_sandbox<'a>(
        &'a self,
        config: &'a SandboxConfig,
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<SandboxId, RuntimeError>> {
        let left = deadline.0.saturating_duration_since(self.clock.now());
        let hangs = {
            let mut state = self.state.lock().unwrap();
            state.sandbox_limits.push(left);
            state.sandbox_hangs.contains(&config.pod.uid)
        };
        if hangs {
            return async move {
                tokio::time::sleep(left).await;
                Err(RuntimeError::Timeout {
                    call: "fake",
                    limit_ms: 1,
                })
            }
            .boxed();
        }
        let name = format!("run_sandbox {}", config.attempt);
        self.call(name, |state, at| {
            let taken = |one: &SandboxStatus| {
                one.pod.uid == config.pod.uid && one.attempt == config.attempt
            };
            if state.sandboxes.iter().any(taken) {
                let message = "reserved".to_owned();
                return Err(RuntimeError::AlreadyExists {
                    call: "fake",
                    message,
                });
            }
            let id = SandboxId::from(state.id("s"));
            state.owner.insert(id.clone(), config.pod.uid.clone());
            state.sandboxes.push(SandboxStatus {
                id: id.clone(),
                pod: config.pod.clone(),
                attempt: config.attempt,
                state: SandboxState::Ready,
                created_at: at,
                ips: vec!["10.1.0.7".into()],
            });
            Ok(id)
        })
        .boxed()
    }

    fn stop_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.call(format!("stop_sandbox {id}"), |state, at| {
            state.stop_in(id, at);
            for one in state.sandboxes.iter_mut().filter(|one| one.id == *id) {
                one.state = SandboxState::NotReady;
            }
            Ok(())
        })
        .boxed()
    }

    fn remove_sandbox<'a>(&'a self, id: &'a SandboxId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.call(format!("remove_sandbox {id}"), |state, _| {
            removable(state)?;
            state.sandboxes.retain(|one| one.id != *id);
            state.containers.retain(|one| one.sandbox != *id);
            Ok(())
        })
        .boxed()
    }

    fn sandbox_status<'a>(
        &'a self,
        id: &'a SandboxId,
    ) -> BoxFuture<'a, Result<SandboxStatus, RuntimeError>> {
        self.call(format!("sandbox_status {id}"), |state, _| {
            let found = state.sandboxes.iter().find(|one| one.id == *id);
            found.cloned().ok_or_else(|| not_found(id.as_str()))
        })
        .boxed()
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a SandboxId,
        container: &'a ContainerConfig,
        _pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<ContainerId, RuntimeError>> {
        let name = format!("create {} {}", container.name, container.attempt);
        self.call(name, |state, at| state.create(sandbox, container, at))
            .boxed()
    }

    fn start_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let mut state = self.state.lock().unwrap();
        let found = state.containers.iter().find(|one| one.id == *id);
        let owner = found.and_then(|one| state.owner.get(&one.sandbox)).cloned();
        if let Some(owner) = owner {
            *state.begun.entry(owner).or_default() += 1;
        }
        drop(state);
        self.call(format!("start {id}"), |state, at| state.start(id, at))
            .boxed()
    }

    fn stop_container<'a>(
        &'a self,
        id: &'a ContainerId,
        grace: Duration,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let (takes, code) = {
            let mut state = self.state.lock().unwrap();
            state.note(id, Some(grace));
            let name = state.containers.iter().find(|one| one.id == *id);
            let takes = name.and_then(|one| state.stop_takes.get(one.name.as_str()));
            let code = state.stop_code.unwrap_or(143);
            let takes = takes.copied().unwrap_or_default();
            let owner = name.and_then(|one| state.owner.get(&one.sandbox));
            if owner.is_some() && owner == state.unstoppable.as_ref() {
                let message = "it does not stop".to_owned();
                let call = "fake";
                return async { Err(RuntimeError::Refused { call, message }) }.boxed();
            }
            (takes, if takes > grace { 137 } else { code })
        };
        async move {
            self.until_ended(id, takes.min(grace)).await;
            let call = format!("stop {id} {}", grace.as_secs());
            let stopped = self.call(call, |state, at| {
                let found = state.containers.iter_mut().find(|one| one.id == *id);
                if let Some(one) = found.filter(|one| one.state == ContainerState::Running) {
                    end(one, code, at);
                }
                Ok(())
            });
            stopped.await
        }
        .boxed()
    }

    fn remove_container<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.call(format!("remove {id}"), |state, _| {
            removable(state)?;
            state.containers.retain(|one| one.id != *id);
            Ok(())
        })
        .boxed()
    }

    fn container_status<'a>(
        &'a self,
        id: &'a ContainerId,
    ) -> BoxFuture<'a, Result<ContainerStatus, RuntimeError>> {
        self.call(format!("container_status {id}"), |state, _| {
            let found = state.containers.iter().find(|one| one.id == *id);
            found.cloned().ok_or_else(|| not_found(id.as_str()))
        })
        .boxed()
    }

    fn pod<'a>(&'a self, uid: &'a PodUid) -> BoxFuture<'a, Result<RuntimePod, RuntimeError>> {
        let (panics, hangs) = {
            let state = self.state.lock().unwrap();
            (state.panics, state.query_hangs.contains(uid))
        };
        let found = self.call("pod".to_owned(), |state, _| {
            let key = swiftlet_model::ids::PodKey {
                namespace: "default".into(),
                name: uid.to_string(),
                uid: uid.clone(),
            };
            Ok(state.pod(uid).unwrap_or_else(|| RuntimePod::empty(key)))
        });
        async move {
            let found = found.await;
            assert!(!panics, "as the test wants it");
            if hangs {
                return std::future::pending().await;
            }
            // What happens meanwhile is not in the answer.
            tokio::time::sleep(self.delay).await;
            found
        }
        .boxed()
    }

    fn list_pods(&self) -> BoxFuture<'_, Result<Vec<RuntimePod>, RuntimeError>> {
        async {
            let state = self.state.lock().unwrap();
            if state.down {
                return Err(unavailable());
            }
            let mut uids: Vec<_> = state.sandboxes.iter().map(|one| &one.pod.uid).collect();
            uids.dedup();
            Ok(uids.into_iter().filter_map(|uid| state.pod(uid)).collect())
        }
        .boxed()
    }

    fn exec_sync<'a>(
        &'a self,
        id: &'a ContainerId,
        command: &'a [String],
        limit: Duration,
    ) -> BoxFuture<'a, Result<ExecOutput, RuntimeError>> {
        let takes = self.state.lock().unwrap().exec_takes;
        async move {
            let call = format!("exec {id} {}", command.join(" "));
            let answer = self.call(call, |state, _| {
                let usual = ExecOutput {
                    exit_code: i32::from(state.exec_fails),
                    ..ExecOutput::default()
                };
                state.exec_answers.pop_front().unwrap_or(Ok(usual))
            });
            let answer = answer.await;
            tokio::time::sleep(takes.min(limit)).await;
            if takes > limit {
                return Err(RuntimeError::Timeout {
                    call: "ExecSync",
                    limit_ms: 1,
                });
            }
            answer
        }
        .boxed()
    }

    fn update_resources<'a>(
        &'a self,
        id: &'a ContainerId,
        resources: &'a LinuxResources,
    ) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let limits = (resources.cpu_quota_us, resources.memory_limit_bytes);
        self.call(format!("update {id} {limits:?}"), |_, _| Ok(()))
            .boxed()
    }

    fn reopen_log<'a>(&'a self, id: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.call(format!("reopen {id}"), |_, _| Ok(())).boxed()
    }

    fn image<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Image>, RuntimeError>> {
        async move {
            let state = self.state.lock().unwrap();
            let tagged = |name: &String| format!("{name}:latest");
            let mut all = state.images.iter();
            // The one that has just been pulled is asked for by its id.
            let found = image == "sha256:1" || all.any(|one| one == image || tagged(one) == image);
            Ok(found.then(|| Image {
                id: "sha256:1".to_owned(),
                size_bytes: 7,
                user: state.image_user.clone(),
                ..Image::default()
            }))
        }
        .boxed()
    }

    fn list_images(&self) -> BoxFuture<'_, Result<Vec<Image>, RuntimeError>> {
        async move {
            let state = self.state.lock().unwrap();
            let images = state.images.iter().map(|name| Image {
                id: format!("sha256:{name}"),
                tags: vec![name.clone()],
                ..Image::default()
            });
            Ok(images.chain(state.image_list.iter().cloned()).collect())
        }
        .boxed()
    }

    fn pull_image<'a>(
        &'a self,
        image: &'a str,
        auth: Option<&'a ImageAuth>,
        _pod: &'a SandboxConfig,
    ) -> BoxFuture<'a, Result<String, RuntimeError>> {
        if self.state.lock().unwrap().pull_hangs {
            return std::future::pending().boxed();
        }
        let user = auth.map(|auth| auth.username.clone());
        self.call(format!("pull {image}"), move |state, _| {
            let stranger = state.pull_user.is_some() && state.pull_user != user;
            state.pull_users.push(user);
            if stranger || state.pull_fails {
                let message = "no such image".to_owned();
                return Err(RuntimeError::Refused {
                    call: "PullImage",
                    message,
                });
            }
            state.images.push(image.to_owned());
            Ok("sha256:1".to_owned())
        })
        .boxed()
    }

    fn remove_image<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), RuntimeError>> {
        self.call(format!("remove image {id}"), move |state, _| {
            state.images.retain(|name| format!("sha256:{name}") != id);
            state.image_list.retain(|image| image.id != id);
            Ok(())
        })
        .boxed()
    }

    fn image_filesystem(&self) -> BoxFuture<'_, Result<Option<ImageFilesystem>, RuntimeError>> {
        let state = self.state.lock().unwrap();
        if state.image_filesystem_hangs {
            return std::future::pending().boxed();
        }
        let place = state.image_filesystem.clone();
        async { Ok(place) }.boxed()
    }
}
