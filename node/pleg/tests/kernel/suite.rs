//! What every source promises, kept by each of them.
//!
//! Deaths are told once each, whatever else is told of a container, and with the right code: in the
//! event, or in the runtime's record, which the worker asks for at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use swiftlet_model::ids::ContainerId;
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind, PodTracker};
use swiftlet_model::runtime::ProcessOf;
use swiftlet_pleg::Source as Kind;

use crate::container::{PATIENCE, TestPod};
use crate::runtime::FakeRuntime;
use crate::source::Source;

/// Containers that end at the same time.
const MANY: usize = 40;

/// The same tests over each source.
macro_rules! over_each_source {
    ($($promise:ident),* $(,)?) => {
        over_each_source!(@ kernel Kernel $($promise)*);
        over_each_source!(@ runtime Runtime $($promise)*);
        over_each_source!(@ pidfd Pidfd $($promise)*);
        over_each_source!(@ relist Relist $($promise)*);
    };
    (@ $name:ident $kind:ident $($promise:ident)*) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $promise() {
                    super::$promise(swiftlet_pleg::Source::$kind).await;
                }
            )*
        }
    };
}

over_each_source!(
    every_exit_code_is_told_once,
    many_exits_at_once_are_told_once_each,
    an_exit_before_anybody_knew_of_the_start_is_told,
    after_a_restart_the_exit_of_a_running_container_is_told,
    an_exit_while_the_agent_was_away_is_a_hint_at_start,
);

/// A pod of a runtime, and the source that watches it.
struct Stage {
    pod: TestPod,
    runtime: Arc<FakeRuntime>,
    source: Source,
}

impl Stage {
    async fn new(kind: Kind) -> Self {
        let (pod, runtime) = (TestPod::new(), Arc::new(FakeRuntime::default()));
        let source = watching(kind, &pod, &runtime).await;
        Self {
            pod,
            runtime,
            source,
        }
    }

    /// Runs a program and says so, as the worker does when the runtime has answered.
    fn run(&self, id: &str, script: &str) {
        self.runtime.run(&self.pod, id, script);
        self.answered(id);
    }

    fn answered(&self, id: &str) {
        let (handle, of) = (&self.source.handle, ProcessOf::Container);
        handle.runs(&self.pod.uid, &ContainerId::from(id), of);
    }

    /// Takes events until each of these containers has died; answers how each did.
    async fn deaths(&mut self, of: &[String]) -> BTreeMap<String, i32> {
        let mut deaths = BTreeMap::new();
        while deaths.len() < of.len() {
            let event = self.source.next().await;
            assert_eq!(event.pod, self.pod.uid);
            match event.kind {
                LifecycleKind::ContainerDied { container, exit } => {
                    let code = self.code(&container, exit).await;
                    let again = deaths.insert(container.to_string(), code);
                    assert_eq!(again, None, "{container} died twice");
                }
                LifecycleKind::ContainerStarted { container } => {
                    assert!(
                        !deaths.contains_key(container.as_str()),
                        "{container} is dead"
                    );
                }
                LifecycleKind::Changed => (),
            }
        }
        assert!(deaths.keys().all(|id| of.contains(id)), "{deaths:?}");
        deaths
    }

    /// As the worker finds it: the event's, or the runtime's record.
    async fn code(&self, container: &ContainerId, exit: Option<KernelExit>) -> i32 {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let record = self.runtime.find(container).and_then(|one| one.exit);
            if let Some(code) = exit
                .map(|exit| exit.code)
                .or(record.map(|record| record.code))
            {
                return code;
            }
            assert!(Instant::now() < give_up, "{container} has no record");
            tokio::task::yield_now().await;
        }
    }
}

async fn watching(kind: Kind, pod: &TestPod, runtime: &Arc<FakeRuntime>) -> Source {
    let source = Source::with(kind, runtime.clone());
    source.expect_source(kind).await;
    source.handle.track(&pod.uid, &pod.cgroup);
    source
}

async fn every_exit_code_is_told_once(kind: Kind) {
    let mut stage = Stage::new(kind).await;
    for code in [0, 7, 255] {
        let id = format!("code{code}");
        stage.run(&id, &format!("exit {code}"));
        let deaths = stage.deaths(std::slice::from_ref(&id)).await;
        assert_eq!(deaths[&id], code);
    }
    stage.run("killed", "exec sleep 1000");
    stage.runtime.kill("killed");
    assert_eq!(stage.deaths(&["killed".to_owned()]).await["killed"], 137);
    assert_eq!(stage.source.handle.stats().died, 4, "once each");
}

async fn many_exits_at_once_are_told_once_each(kind: Kind) {
    let mut stage = Stage::new(kind).await;
    let ids: Vec<_> = (0..MANY).map(|number| format!("c{number}")).collect();
    for id in &ids {
        stage.run(id, "exec sleep 1000");
    }
    for id in &ids {
        stage.runtime.kill(id);
    }
    let deaths = stage.deaths(&ids).await;
    assert!(deaths.values().all(|code| *code == 137), "{deaths:?}");
    assert_eq!(stage.source.handle.stats().died, MANY as u64);
    assert_eq!(stage.source.handle.stats().queue_full, 0);
}

async fn an_exit_before_anybody_knew_of_the_start_is_told(kind: Kind) {
    let mut stage = Stage::new(kind).await;
    stage.runtime.run(&stage.pod, "short", "exit 3");
    let give_up = Instant::now() + PATIENCE;
    while stage
        .runtime
        .find(&"short".into())
        .is_none_or(|one| one.exit.is_none())
    {
        assert!(Instant::now() < give_up, "it ends");
        tokio::task::yield_now().await;
    }
    stage.answered("short");
    assert_eq!(stage.deaths(&["short".to_owned()]).await["short"], 3);
}

async fn after_a_restart_the_exit_of_a_running_container_is_told(kind: Kind) {
    let mut stage = Stage::new(kind).await;
    stage.run("survivor", "exec sleep 1000");
    stage.source = watching(kind, &stage.pod, &stage.runtime).await;
    // The list was compared: from now on the source is on its own.
    assert_eq!(stage.source.next().await.kind, LifecycleKind::Changed);
    stage.runtime.kill("survivor");
    assert_eq!(
        stage.deaths(&["survivor".to_owned()]).await["survivor"],
        137
    );
}

async fn an_exit_while_the_agent_was_away_is_a_hint_at_start(kind: Kind) {
    let Stage {
        pod,
        runtime,
        source,
    } = Stage::new(kind).await;
    runtime.run(&pod, "lost", "exec sleep 1000");
    drop(source);
    runtime.kill("lost");
    while runtime
        .find(&"lost".into())
        .is_none_or(|one| one.exit.is_none())
    {
        tokio::task::yield_now().await;
    }
    let mut source = watching(kind, &pod, &runtime).await;
    let event = source.next().await;
    assert_eq!(
        (event.pod, event.kind),
        (pod.uid.clone(), LifecycleKind::Changed)
    );
}
