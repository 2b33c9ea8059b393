//! Statuses of whole pods.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, EphemeralContainer, Pod, PodCondition, PodSpec, PodStatus,
    ResourceRequirements, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::{ContainerExit, ContainerState, RuntimePod};

use crate::kuberuntime::history::History;
use crate::prober::results::ProbeResults;
use crate::status::failure::PodFailure;
use crate::status::generate::{StatusFacts, generate};

/// What the runtime says of a container.
#[derive(Clone, Copy)]
enum Is {
    Running,
    Ended(i32),
    /// It was stopped, and the runtime has not told yet how it ended.
    Stopped,
}

#[derive(Default)]
struct Scene {
    pod: Pod,
    records: Vec<(&'static str, Is)>,
    previous: PodStatus,
    failure: Option<PodFailure>,
    ended: bool,
}

impl Scene {
    fn new(init: &[&str], mains: &[&str]) -> Self {
        let container = |name: &&str| Container {
            name: name.trim_start_matches('+').to_owned(),
            restart_policy: name.starts_with('+').then(|| "Always".to_owned()),
            ..Container::default()
        };
        let mut pod = crate::testing::stand::pod("a");
        pod.metadata.generation = Some(7);
        pod.spec = Some(PodSpec {
            init_containers: Some(init.iter().map(container).collect()),
            containers: mains.iter().map(container).collect(),
            restart_policy: Some("Never".into()),
            ..PodSpec::default()
        });
        Self {
            pod,
            ..Self::default()
        }
    }

    fn with(mut self, records: &[(&'static str, Is)]) -> Self {
        self.records.extend(records);
        self
    }

    fn status(&self) -> PodStatus {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let mut observed = RuntimePod::empty(PodKey::of(&self.pod));
        let mut history = History::default();
        for (name, is) in &self.records {
            let (state, exit) = match is {
                Is::Running => (ContainerState::Running, None),
                Is::Stopped => (ContainerState::Exited, None),
                Is::Ended(code) => (
                    ContainerState::Exited,
                    Some(ContainerExit {
                        code: *code,
                        oom_killed: false,
                        at: now,
                        reason: "Error".into(),
                        message: String::new(),
                    }),
                ),
            };
            observed
                .containers
                .push(swiftlet_model::runtime::ContainerStatus {
                    id: format!("id-{name}").into(),
                    name: (*name).into(),
                    sandbox: "s".into(),
                    attempt: 0,
                    state,
                    created_at: now,
                    started_at: Some(now),
                    exit,
                    image: "image".into(),
                    image_id: "image-id".into(),
                    spec_hash: None,
                });
        }
        history.absorb(&observed);
        generate(&StatusFacts {
            pod: &self.pod,
            observed: &observed,
            history: &history,
            waiting: &BTreeMap::new(),
            backing_off: &[],
            probes: &ProbeResults::default(),
            previous: &self.previous,
            rejection: None,
            failure: self.failure.as_ref(),
            host_ips: &[],
            runtime_name: "fakerd",
            ended: self.ended,
            now,
        })
    }
}

fn phase(status: &PodStatus) -> &str {
    status.phase.as_deref().unwrap()
}

fn condition<'a>(status: &'a PodStatus, name: &str) -> &'a PodCondition {
    let mut all = status.conditions.iter().flatten();
    all.find(|one| one.type_ == name).unwrap()
}

/// `Running`, a reason of waiting, or a reason of the end.
fn state(one: &ContainerStatus) -> String {
    let state = one.state.clone().unwrap();
    if state.running.is_some() {
        return "Running".into();
    }
    let waiting = state.waiting.and_then(|waiting| waiting.reason);
    waiting
        .or(state.terminated.and_then(|ended| ended.reason))
        .unwrap()
}

#[test]
fn sidecars_count_for_the_phase_until_they_end() {
    use Is::{Ended, Running};
    for (records, ended, expected) in [
        (&[][..], false, "Pending"),
        (&[("side", Running)], false, "Pending"),
        (&[("side", Running), ("init", Running)], false, "Pending"),
        (
            &[("side", Running), ("init", Ended(0)), ("main", Running)],
            false,
            "Running",
        ),
        // The main container is done, the sidecar is still to be stopped.
        (
            &[("side", Running), ("init", Ended(0)), ("main", Ended(0))],
            false,
            "Running",
        ),
        (
            &[("side", Ended(137)), ("init", Ended(0)), ("main", Ended(0))],
            true,
            "Succeeded",
        ),
        (
            &[("side", Ended(0)), ("init", Ended(0)), ("main", Ended(1))],
            true,
            "Failed",
        ),
        // A sidecar that is away does not make a running pod pending.
        (
            &[("side", Ended(1)), ("init", Ended(0)), ("main", Running)],
            false,
            "Running",
        ),
    ] {
        let mut scene = Scene::new(&["+side", "init"], &["main"]).with(records);
        scene.ended = ended;
        let status = scene.status();
        let states: Vec<_> = status
            .container_statuses
            .iter()
            .flatten()
            .map(state)
            .collect();
        assert_eq!(phase(&status), expected, "{states:?} {ended}");
    }
}

#[test]
fn a_sidecar_is_ready_as_a_main_container_is_and_an_init_container_when_it_has_ended() {
    use Is::{Ended, Running};
    let records = [("side", Running), ("init", Ended(0)), ("main", Running)];
    let status = Scene::new(&["+side", "init"], &["main"])
        .with(&records)
        .status();
    let init = status.init_container_statuses.as_ref().unwrap();
    let seen: Vec<_> = init.iter().map(|one| (one.ready, one.started)).collect();
    assert_eq!(seen, [(true, Some(true)), (true, Some(false))]);
    assert_eq!(condition(&status, "Initialized").status, "True");
    assert_eq!(condition(&status, "Ready").observed_generation, Some(7));
    assert_eq!(status.observed_generation, Some(7));

    let status = Scene::new(&["+side", "init"], &["main"])
        .with(&records[..1])
        .status();
    let initialized = condition(&status, "Initialized");
    assert_eq!(initialized.status, "False");
    let message = "containers with incomplete status: [init]";
    assert_eq!(initialized.message.as_deref(), Some(message));
    let ready = condition(&status, "ContainersReady");
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [main]")
    );
    let main = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(state(main), "PodInitializing");

    let records = [("side", Ended(1)), ("init", Ended(0)), ("main", Running)];
    let status = Scene::new(&["+side", "init"], &["main"])
        .with(&records)
        .status();
    assert_eq!(
        condition(&status, "Initialized").status,
        "True",
        "it has been"
    );
    let ready = condition(&status, "ContainersReady");
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [side]")
    );
}

#[test]
fn a_pod_that_the_node_ends_says_why_and_only_when_it_has_ended() {
    let mut scene = Scene::new(&[], &["main"]).with(&[("main", Is::Running)]);
    let told = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("TerminationByKubelet".into()),
        ..PodCondition::default()
    };
    scene.failure = Some(PodFailure {
        reason: "Evicted".into(),
        message: "The node was low on resource: memory. ".into(),
        condition: Some(told),
        grace: None,
    });
    let status = scene.status();
    assert_eq!((phase(&status), status.reason.clone()), ("Running", None));
    let target = condition(&status, "DisruptionTarget").clone();
    assert!(target.last_transition_time.is_some());
    assert_eq!(target.observed_generation, Some(7));
    scene.records = vec![("main", Is::Ended(0))];
    scene.ended = true;
    scene.previous = status;
    let status = scene.status();
    assert_eq!(
        (phase(&status), status.reason.as_deref()),
        ("Failed", Some("Evicted"))
    );
    assert_eq!(condition(&status, "DisruptionTarget"), &target);
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodFailed")
    );
    // The next run of this program knows nothing of the reason any more.
    scene.failure = None;
    scene.pod.status = Some(status.clone());
    scene.previous = status.clone();
    assert_eq!(scene.status(), status);
}

#[test]
fn in_a_pod_that_is_over_nothing_looks_as_if_it_still_came() {
    let states = |status: &PodStatus| -> Vec<String> {
        let init = status.init_container_statuses.iter().flatten();
        let all = init.chain(status.container_statuses.iter().flatten());
        all.map(state).collect()
    };
    let over = |init: &[&str], records: &[(&'static str, Is)]| {
        let mut scene = Scene::new(init, &["a", "b"]).with(records);
        scene.ended = true;
        scene.status()
    };
    let status = over(&[], &[("a", Is::Ended(0))]);
    assert_eq!(states(&status), ["Error", "ContainerStatusUnknown"]);
    assert_eq!(phase(&status), "Failed");
    // It never got past its init containers: the main ones were not to be expected.
    let status = over(&["i", "j"], &[("i", Is::Ended(1))]);
    let waits = "PodInitializing";
    assert_eq!(states(&status), ["Error", waits, waits, waits]);
    assert_eq!(phase(&status), "Failed");
}

#[test]
fn what_a_container_was_given_is_shown() {
    let mut scene = Scene::new(&[], &["main"]).with(&[("main", Is::Running)]);
    let requests = BTreeMap::from([("cpu".to_owned(), Quantity("100m".into()))]);
    let spec = scene.pod.spec.as_mut().unwrap();
    spec.containers[0].resources = Some(ResourceRequirements {
        requests: Some(requests.clone()),
        ..ResourceRequirements::default()
    });
    spec.containers[0].volume_mounts = Some(vec![VolumeMount {
        name: "v".into(),
        mount_path: "/v".into(),
        read_only: Some(true),
        ..VolumeMount::default()
    }]);
    let main = scene.status().container_statuses.unwrap().remove(0);
    assert_eq!(main.allocated_resources, Some(requests.clone()));
    assert_eq!(main.resources.unwrap().requests, Some(requests));
    let mount = &main.volume_mounts.unwrap()[0];
    assert_eq!(mount.recursive_read_only.as_deref(), Some("Disabled"));
}

#[test]
fn an_ephemeral_container_is_shown_and_counts_for_nothing() {
    let records = [("main", Is::Running), ("debug", Is::Ended(1))];
    let mut scene = Scene::new(&[], &["main"]).with(&records);
    scene.pod.spec.as_mut().unwrap().ephemeral_containers = Some(vec![EphemeralContainer {
        name: "debug".into(),
        ..EphemeralContainer::default()
    }]);
    let status = scene.status();
    assert_eq!(phase(&status), "Running");
    assert_eq!(condition(&status, "Ready").status, "True");
    let debug = &status.ephemeral_container_statuses.unwrap()[0];
    assert_eq!((debug.ready, debug.started), (false, None));
    assert_eq!(state(debug), "Error");
}

#[test]
fn an_end_that_the_runtime_has_not_told_yet_is_not_shown_with_a_made_up_exit_code() {
    let status = Scene::new(&[], &["a"]).with(&[("a", Is::Stopped)]).status();
    let state = status.container_statuses.unwrap().remove(0).state.unwrap();
    assert!(state.running.is_some() && state.terminated.is_none());
    assert_eq!(status.phase.as_deref(), Some("Running"));
}
