//! Random histories: pods come, change, die and go, calls fail, the agent is restarted. Whatever
//! happens, the invariants hold after each step, and in the end everything is as it should be.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use swiftlet_model::lifecycle::LifecycleKind;
use swiftlet_model::runtime::{ContainerState, SandboxState};

use crate::testing::runtime::Fault;
use crate::testing::stand::{Stand, pod};

const PODS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Op {
    Create(usize),
    Delete(usize),
    Vanish(usize),
    /// A container dies; the hint may be lost or come as "changed".
    Die(usize, i32, Hint),
    Fail(Vec<Option<Fault>>),
    Wait(u64),
    RestartAgent,
}

#[derive(Clone, Copy, Debug)]
enum Hint {
    Exact,
    Changed,
}

fn op() -> impl Strategy<Value = Op> {
    let fault = prop::option::of(prop::sample::select(vec![
        Fault::Unavailable,
        Fault::TimeoutAfterEffect,
        Fault::Refused,
    ]));
    let hint = prop::sample::select(vec![Hint::Exact, Hint::Changed]);
    prop_oneof![
        3 => (0..3_usize).prop_map(Op::Create),
        1 => (0..3_usize).prop_map(Op::Delete),
        1 => (0..3_usize).prop_map(Op::Vanish),
        3 => (0..3_usize, 0..3_i32, hint).prop_map(|(pod, code, hint)| Op::Die(pod, code, hint)),
        2 => prop::collection::vec(fault, 1..6).prop_map(Op::Fail),
        4 => (1..400_u64).prop_map(Op::Wait),
        1 => (1..30_000_u64).prop_map(Op::Wait),
        1 => Just(Op::RestartAgent),
    ]
}

/// What the API holds.
#[derive(Default)]
struct Api {
    pods: BTreeMap<usize, Pod>,
    /// Grows with each pod of one name, so that no uid is used twice.
    serial: usize,
    deleting: BTreeMap<usize, bool>,
    /// Pods that were told to end, and the starts that had been asked for until then.
    ended: BTreeMap<String, usize>,
}

impl Api {
    fn uid(&self, index: usize) -> Option<String> {
        self.pods
            .get(&index)
            .and_then(|pod| pod.metadata.uid.clone())
    }
}

async fn apply(mut stand: Stand, api: &mut Api, op: &Op, policy: &str) -> Stand {
    let ended = match op {
        Op::Delete(index) | Op::Vanish(index) => api.uid(*index),
        _ => None,
    };
    match op {
        Op::Create(index) if !api.pods.contains_key(index) => {
            api.serial += 1;
            let mut pod = pod(&format!("{}{}", PODS[*index], api.serial));
            pod.spec.as_mut().unwrap().restart_policy = Some(policy.to_owned());
            stand.upsert(&pod).await;
            api.pods.insert(*index, pod);
        }
        Op::Delete(index) => {
            if let Some(pod) = api
                .pods
                .get(index)
                .filter(|_| !api.deleting.contains_key(index))
            {
                stand.delete(pod, 30).await;
                api.deleting.insert(*index, true);
            }
        }
        Op::Vanish(index) => {
            if let Some(pod) = api.pods.remove(index) {
                api.deleting.remove(index);
                let key = swiftlet_model::ids::PodKey::of(&pod);
                let event = swiftlet_model::control_plane::ControlPlaneEvent::PodRemoved(key);
                stand.send(event).await;
            }
        }
        Op::Die(index, code, hint) => die(&stand, api, *index, *code, *hint).await,
        Op::Fail(faults) => stand.runtime.state.lock().unwrap().faults.extend(faults),
        Op::Wait(ms) => stand.turn(Duration::from_millis(*ms)).await,
        Op::RestartAgent => {
            stand = stand.restart().await;
            relist(&stand, api).await;
        }
        Op::Create(_) => {}
    }
    stand.turn(Duration::from_millis(1)).await;
    if let Some(uid) = ended {
        let state = stand.runtime.state.lock().unwrap();
        let begun = state
            .begun
            .get(&uid.as_str().into())
            .copied()
            .unwrap_or_default();
        api.ended.entry(uid).or_insert(begun);
    }
    stand
}

/// The control plane lists its pods; those that are being deleted say so.
async fn relist(stand: &Stand, api: &Api) {
    let all: Vec<&Pod> = api
        .pods
        .iter()
        .filter(|(index, _)| !api.deleting.contains_key(*index))
        .map(|(_, pod)| pod)
        .collect();
    let deleting: Vec<Pod> = api
        .pods
        .iter()
        .filter(|(index, _)| api.deleting.contains_key(*index))
        .map(|(_, pod)| stand.deleting(pod, 30))
        .collect();
    stand
        .list(&all.into_iter().chain(&deleting).collect::<Vec<_>>())
        .await;
}

async fn die(stand: &Stand, api: &Api, index: usize, code: i32, hint: Hint) {
    let Some(uid) = api.uid(index) else { return };
    let running = {
        let state = stand.runtime.state.lock().unwrap();
        let sandbox = state
            .sandboxes
            .iter()
            .find(|one| one.pod.uid.as_str() == uid);
        let sandbox = sandbox.map(|one| one.id.clone());
        let mut all = state.containers.iter();
        all.find(|one| {
            Some(&one.sandbox) == sandbox.as_ref() && one.state == ContainerState::Running
        })
        .map(|one| one.id.clone())
    };
    let Some(id) = running else { return };
    match hint {
        Hint::Exact => stand.die(&uid, &id, code).await,
        Hint::Changed => {
            stand.runtime.kill(&id, code);
            stand.hint(&uid, LifecycleKind::Changed).await;
        }
    }
}

/// What must hold at any moment.
fn check(stand: &Stand, api: &mut Api) {
    let state = stand.runtime.state.lock().unwrap();
    let mut running: BTreeMap<(String, String), usize> = BTreeMap::new();
    for container in state
        .containers
        .iter()
        .filter(|one| one.state == ContainerState::Running)
    {
        let sandbox = container.sandbox.to_string();
        *running
            .entry((sandbox, container.name.to_string()))
            .or_default() += 1;
    }
    assert!(
        running.values().all(|count| *count == 1),
        "two of one container: {running:?}"
    );
    let mut ready: BTreeMap<String, usize> = BTreeMap::new();
    for sandbox in state
        .sandboxes
        .iter()
        .filter(|one| one.state == SandboxState::Ready)
    {
        *ready.entry(sandbox.pod.uid.to_string()).or_default() += 1;
    }
    assert!(
        ready.values().all(|count| *count == 1),
        "two sandboxes: {ready:?}"
    );
    for (uid, before) in &api.ended {
        let begun = state
            .begun
            .get(&uid.as_str().into())
            .copied()
            .unwrap_or_default();
        assert_eq!(*before, begun, "{uid} was started after its end had begun");
    }
    let told = stand.control_plane.told.lock().unwrap();
    let mut terminal: BTreeMap<String, String> = BTreeMap::new();
    for (uid, status) in &told.statuses {
        let phase = status.phase.clone().unwrap_or_default();
        if let Some(before) = terminal.get(uid.as_str()) {
            assert_eq!(*before, phase, "a terminal phase went back: {uid}");
        }
        if phase == "Succeeded" || phase == "Failed" {
            terminal.insert(uid.to_string(), phase);
        }
    }
    for uid in &told.gone {
        assert!(stand.node.is_clean(uid), "{uid} was called gone too early");
        let left = state.sandboxes.iter().any(|one| one.pod.uid == *uid);
        assert!(!left, "{uid} has a sandbox, but was called gone");
    }
    let gone: Vec<String> = told.gone.iter().map(ToString::to_string).collect();
    let uids: Vec<(usize, Option<String>)> = api
        .pods
        .keys()
        .map(|index| (*index, api.uid(*index)))
        .collect();
    for (index, uid) in uids {
        if uid.is_some_and(|uid| gone.contains(&uid)) {
            api.pods.remove(&index);
            api.deleting.remove(&index);
        }
    }
}

async fn live(ops: Vec<Op>, policy: &str) {
    let mut stand = Stand::new().await;
    let mut api = Api::default();
    for op in &ops {
        stand = apply(stand, &mut api, op, policy).await;
        check(&stand, &mut api);
    }
    stand.runtime.state.lock().unwrap().faults.clear();
    relist(&stand, &api).await;
    stand.seconds(700).await;
    check(&stand, &mut api);
    for pod in api.pods.values() {
        let uid = pod.metadata.uid.clone().unwrap();
        let over = ["Succeeded", "Failed"].map(str::to_owned);
        let settled = stand.is_ready(&uid) || stand.phase(&uid).is_some_and(|p| over.contains(&p));
        assert!(settled, "{uid}: {:?}", stand.control_plane.status(&uid));
    }
    for pod in api.pods.values() {
        stand.delete(pod, 30).await;
    }
    stand.seconds(100).await;
    check(&stand, &mut api);
    assert!(
        api.pods.is_empty(),
        "pods that never went: {:?}",
        api.pods.keys()
    );
    let state = stand.runtime.state.lock().unwrap();
    assert!(state.sandboxes.is_empty(), "{:?}", state.sandboxes);
    assert!(state.containers.is_empty(), "{:?}", state.containers);
    assert!(stand.node.volumes.lock().unwrap().is_empty());
    assert!(stand.node.logs.lock().unwrap().is_empty());
    assert!(stand.node.cgroups.lock().unwrap().is_empty());
    assert!(stand.node.tracked.lock().unwrap().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn every_history_keeps_the_invariants_and_ends_clean(
        ops in prop::collection::vec(op(), 1..40),
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(live(ops, policy));
    }
}
