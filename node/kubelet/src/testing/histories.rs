//! Random histories: pods come, change, die and go, calls fail, the agent is restarted. Whatever
//! happens, the invariants hold after each step, and in the end everything is as it should be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use swiftlet_model::lifecycle::LifecycleKind;
use swiftlet_model::runtime::ContainerState;

use crate::testing::histories::oracle::check;
use crate::testing::histories::restart::LeftAlone;
use crate::testing::histories::shape::{Shape, shaped};
use crate::testing::runtime::Fault;
use crate::testing::stand::Stand;

mod oracle;
mod restart;
mod shape;

const PODS: [&str; 3] = ["a", "b", "c"];
/// Grace of deletions.
const GRACE_S: i64 = 30;

#[derive(Clone, Debug)]
enum Op {
    Create(usize),
    Delete(usize),
    Vanish(usize),
    /// A container dies; the hint may come as "changed", or be lost until the next relist.
    Die(usize, usize, i32, Hint),
    /// All pods whose hints were lost are found changed.
    Relist,
    /// An image changes.
    Edit(usize, usize),
    /// Commands in containers, which are probes and hooks, fail from now on, or work again.
    Commands(bool),
    /// How long containers take to end, and commands to run.
    Slow(u64),
    Fail(Vec<Option<Fault>>),
    Wait(u64),
    /// The runtime answers no call, or answers again.
    Outage(bool),
    RestartAgent,
    /// The agent ends on the spot.
    CrashAgent,
}

#[derive(Clone, Copy, Debug)]
enum Hint {
    Exact,
    Changed,
    Lost,
}

fn op() -> impl Strategy<Value = Op> {
    let fault = prop::option::of(prop::sample::select(vec![
        Fault::Unavailable,
        Fault::TimeoutAfterEffect,
        Fault::Refused,
    ]));
    let hint = prop::sample::select(vec![Hint::Exact, Hint::Changed, Hint::Lost]);
    prop_oneof![
        3 => (0..3_usize).prop_map(Op::Create),
        1 => (0..3_usize).prop_map(Op::Delete),
        1 => (0..3_usize).prop_map(Op::Vanish),
        4 => (0..3_usize, 0..4_usize, 0..3_i32, hint)
            .prop_map(|(pod, which, code, hint)| Op::Die(pod, which, code, hint)),
        1 => (0..3_usize, 0..4_usize).prop_map(|(pod, which)| Op::Edit(pod, which)),
        1 => any::<bool>().prop_map(Op::Commands),
        1 => prop::sample::select(vec![0, 3, 40]).prop_map(Op::Slow),
        2 => prop::collection::vec(fault, 1..6).prop_map(Op::Fail),
        4 => (1..400_u64).prop_map(Op::Wait),
        1 => (1..30_000_u64).prop_map(Op::Wait),
        1 => Just(Op::Relist),
        1 => any::<bool>().prop_map(Op::Outage),
        1 => Just(Op::RestartAgent),
        1 => Just(Op::CrashAgent),
    ]
}

/// What the API holds.
#[derive(Default)]
struct Api {
    pods: BTreeMap<usize, Pod>,
    /// Grows with each pod of one name, so that no uid is used twice.
    serial: usize,
    /// Objects that say that they are being deleted, and until when.
    deleting: BTreeMap<usize, Pod>,
    /// When the grace of pods that were told to end is over, by uid.
    deadlines: BTreeMap<String, tokio::time::Instant>,
    /// Pods of which a container got another image.
    edited: BTreeSet<String>,
    /// Pods of which the kernel's word was lost.
    lost: BTreeSet<String>,
    /// Init containers that have succeeded, by sandbox: they do not run again there.
    done: BTreeSet<(String, String)>,
    /// Pods that were told to end, the starts that had been asked for until then, and when it was.
    ended: BTreeMap<String, (usize, tokio::time::Instant)>,
    /// All pods that ever were, by uid.
    known: BTreeMap<String, Pod>,
}

impl Api {
    fn uid(&self, index: usize) -> Option<String> {
        self.pods
            .get(&index)
            .and_then(|pod| pod.metadata.uid.clone())
    }
}

async fn apply(mut stand: Stand, api: &mut Api, op: &Op, shape: Shape) -> Stand {
    let ended = match op {
        Op::Delete(index) | Op::Vanish(index) => api.uid(*index),
        _ => None,
    };
    match op {
        Op::Create(index) if !api.pods.contains_key(index) => {
            api.serial += 1;
            let pod = shaped(&format!("{}{}", PODS[*index], api.serial), shape);
            stand.upsert(&pod).await;
            api.known
                .insert(pod.metadata.uid.clone().unwrap(), pod.clone());
            api.pods.insert(*index, pod);
        }
        Op::Delete(index) => {
            if let Some(pod) = api
                .pods
                .get(index)
                .filter(|_| !api.deleting.contains_key(index))
            {
                let deleting = stand.deleting(pod, GRACE_S);
                stand.upsert(&deleting).await;
                let end = tokio::time::Instant::now() + Duration::from_secs(GRACE_S.unsigned_abs());
                api.deadlines.extend(api.uid(*index).map(|uid| (uid, end)));
                api.deleting.insert(*index, deleting);
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
        Op::Die(index, which, code, hint) => die(&stand, api, *index, *which, *code, *hint).await,
        Op::Relist => find_lost(&stand, api).await,
        Op::Outage(down) => stand.runtime.state.lock().unwrap().down = *down,
        Op::Edit(index, which) => edit(&stand, api, *index, *which).await,
        Op::Commands(fail) => stand.runtime.state.lock().unwrap().exec_fails = *fail,
        Op::Slow(seconds) => slow(&stand, *seconds),
        Op::Fail(faults) => stand.runtime.state.lock().unwrap().faults.extend(faults),
        Op::Wait(ms) => stand.turn(Duration::from_millis(*ms)).await,
        Op::RestartAgent | Op::CrashAgent => stand = start_anew(stand, api, op, shape).await,
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
        let now = tokio::time::Instant::now();
        api.ended.entry(uid).or_insert((begun, now));
    }
    stand
}

/// The agent ends, in order or on the spot, and another one is started.
async fn start_anew(stand: Stand, api: &mut Api, op: &Op, shape: Shape) -> Stand {
    let left = LeftAlone::of(&stand, api, shape);
    let stand = match op {
        Op::CrashAgent => stand.crash().await,
        _ => stand.restart().await,
    };
    // Of a pod whose object is gone a new program does not know the spec, and so no order.
    let live: Vec<_> = api
        .pods
        .keys()
        .filter_map(|index| api.uid(*index))
        .collect();
    api.known.retain(|uid, _| live.contains(uid));
    // The first look of a new program finds everything.
    api.lost.clear();
    relist(&stand, api).await;
    stand.seconds(3).await;
    left.check(&stand);
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
    let deleting = api.deleting.values();
    stand
        .list(&all.into_iter().chain(deleting).collect::<Vec<_>>())
        .await;
}

/// A container of the pod gets another image, unless the pod is being deleted.
async fn edit(stand: &Stand, api: &mut Api, index: usize, which: usize) {
    let deleting = api.deleting.contains_key(&index);
    let Some(pod) = api.pods.get_mut(&index).filter(|_| !deleting) else {
        return;
    };
    let spec = pod.spec.as_mut().unwrap();
    let init = spec.init_containers.iter_mut().flatten();
    let mut all: Vec<_> = init.chain(&mut spec.containers).collect();
    let which = which % all.len();
    all[which].image = Some("busybox:2".to_owned());
    api.edited.extend(pod.metadata.uid.clone());
    stand.upsert(&pod.clone()).await;
}

/// Containers take so long to end, and commands to run.
fn slow(stand: &Stand, seconds: u64) {
    let takes = Duration::from_secs(seconds);
    let mut state = stand.runtime.state.lock().unwrap();
    state.exec_takes = takes;
    for name in ["first", "once", "second", "main"] {
        state.stop_takes.insert(name.to_owned(), takes);
    }
}

/// Init containers do their work.
async fn finish_init(stand: &Stand, api: &Api) {
    for uid in api.known.keys() {
        let once = {
            let state = stand.runtime.state.lock().unwrap();
            let found = state.pod(&uid.as_str().into());
            let mut all = found.into_iter().flat_map(|pod| pod.containers);
            all.find(|one| one.name.as_str() == "once" && one.state == ContainerState::Running)
        };
        if let Some(once) = once {
            stand.die(uid, &once.id, 0).await;
        }
    }
}

async fn die(stand: &Stand, api: &mut Api, index: usize, which: usize, code: i32, hint: Hint) {
    let Some(uid) = api.uid(index) else { return };
    let running = {
        let state = stand.runtime.state.lock().unwrap();
        let sandbox = state
            .sandboxes
            .iter()
            .find(|one| one.pod.uid.as_str() == uid);
        let sandbox = sandbox.map(|one| one.id.clone());
        let all = state.containers.iter().filter(|one| {
            Some(&one.sandbox) == sandbox.as_ref() && one.state == ContainerState::Running
        });
        let all: Vec<_> = all.map(|one| one.id.clone()).collect();
        (!all.is_empty()).then(|| all[which % all.len()].clone())
    };
    let Some(id) = running else { return };
    match hint {
        Hint::Exact => stand.die(&uid, &id, code).await,
        Hint::Changed => {
            stand.runtime.kill(&id, code);
            stand.hint(&uid, LifecycleKind::Changed).await;
        }
        Hint::Lost => {
            stand.runtime.kill(&id, code);
            api.lost.insert(uid);
        }
    }
}

/// A relist finds what the kernel's word was lost of.
async fn find_lost(stand: &Stand, api: &mut Api) {
    for uid in std::mem::take(&mut api.lost) {
        stand.hint(&uid, LifecycleKind::Changed).await;
    }
}

async fn live(ops: Vec<Op>, shape: Shape) {
    let mut stand = Stand::new().await;
    let mut api = Api::default();
    for op in &ops {
        stand = apply(stand, &mut api, op, shape).await;
        check(&stand, &mut api);
    }
    slow(&stand, 0);
    {
        let mut state = stand.runtime.state.lock().unwrap();
        state.faults.clear();
        state.exec_fails = false;
        state.down = false;
    }
    find_lost(&stand, &mut api).await;
    relist(&stand, &api).await;
    for _ in 0..20 {
        stand.seconds(35).await;
        finish_init(&stand, &api).await;
    }
    stand.seconds(60).await;
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

fn run(ops: Vec<Op>, shape: Shape) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(live(ops, shape));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn every_history_keeps_the_invariants_and_ends_clean(
        ops in prop::collection::vec(op(), 1..40),
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
    ) {
        run(ops, Shape { policy, sidecars: false, hooks: false });
    }

    #[test]
    fn every_history_of_pods_with_sidecars_probes_and_hooks_keeps_the_order(
        ops in prop::collection::vec(op(), 1..60),
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        sidecars in any::<bool>(),
        hooks in any::<bool>(),
    ) {
        run(ops, Shape { policy, sidecars, hooks });
    }
}
