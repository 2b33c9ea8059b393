//! What must hold at any moment of a history.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use swiftlet_model::runtime::{ContainerState, ContainerStatus, SandboxState};
use swiftlet_proto::pod::is_sidecar;

use crate::testing::histories::Api;
use crate::testing::runtime::Moment;
use crate::testing::stand::Stand;

/// Below this nobody waits for anybody: the grace period is over.
const GRACE_OVER: Duration = Duration::from_secs(2);
/// Calls that were on their way when a pod was told to end are made within this time.
const ON_THE_WAY: Duration = Duration::from_millis(2);
/// The API's moments are whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// What must hold at any moment.
pub(super) fn check(stand: &Stand, api: &mut Api) {
    let mut state = stand.runtime.state.lock().unwrap();
    for moment in std::mem::take(&mut state.moments) {
        check_order(api, &moment);
        check_deadline(api, &moment);
        check_init(api, &moment);
    }
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
    for (uid, (before, _)) in &api.ended {
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

/// However often the agent was started anew: nobody gets more time than the pod's end leaves.
fn check_deadline(api: &Api, moment: &Moment) {
    let deadline = api.deadlines.get(moment.pod.as_str());
    let (Some(grace), Some(deadline)) = (moment.stop, deadline) else {
        return;
    };
    let told = api.ended.get(moment.pod.as_str());
    if told.is_none_or(|(_, at)| moment.at <= *at + ON_THE_WAY) {
        return;
    }
    let latest = (*deadline + SECOND).max(moment.at + GRACE_OVER);
    let end = moment.at + grace;
    assert!(
        end <= latest,
        "{} of {} has too long",
        moment.name,
        moment.pod
    );
}

/// An init container that has succeeded does not run again in its sandbox.
fn check_init(api: &mut Api, moment: &Moment) {
    let spec = api
        .known
        .get(moment.pod.as_str())
        .and_then(|pod| pod.spec.as_ref());
    let init = spec.and_then(|spec| spec.init_containers.as_ref());
    let plain = init.into_iter().flatten().filter(|one| !is_sidecar(one));
    let plain: Vec<String> = plain.map(|one| one.name.clone()).collect();
    let is_new = |one: &&ContainerStatus| one.name.as_str() == moment.name;
    let newest = moment
        .beside
        .iter()
        .filter(is_new)
        .max_by_key(|one| one.attempt);
    if let (None, Some(own)) = (moment.stop, newest)
        && plain.contains(&moment.name)
        && !api.edited.contains(moment.pod.as_str())
    {
        let key = (own.sandbox.to_string(), moment.name.clone());
        assert!(
            !api.done.contains(&key),
            "{} of {} ran again",
            moment.name,
            moment.pod
        );
    }
    for one in &moment.beside {
        let succeeded = one.exit.as_ref().is_some_and(|exit| exit.code == 0);
        if succeeded && plain.iter().any(|name| name == one.name.as_str()) {
            api.done
                .insert((one.sandbox.to_string(), one.name.to_string()));
        }
    }
}

/// Containers start in the order of the spec and stop in the reverse order.
fn check_order(api: &Api, moment: &Moment) {
    let Some(spec) = api
        .known
        .get(moment.pod.as_str())
        .and_then(|pod| pod.spec.as_ref())
    else {
        return;
    };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let own = init.iter().position(|one| one.name == moment.name);
    match moment.stop {
        None => {
            let before = &init[..own.unwrap_or(init.len())];
            let mut mains = moment
                .beside
                .iter()
                .filter(|one| one.name.as_str() == "main");
            let anew = mains.any(|one| one.attempt > 0);
            // Once a main container was made in a sandbox, only sidecars come back.
            let initialised = own.is_none() && anew;
            for earlier in before {
                assert!(
                    initialised || has_done(earlier, moment),
                    "{} came too early",
                    moment.name
                );
            }
        }
        Some(grace) => {
            let told = api.ended.get(moment.pod.as_str());
            let ends = told.is_some_and(|(_, at)| moment.at > *at + ON_THE_WAY);
            let Some(own) = own.filter(|at| is_sidecar(&init[*at])) else {
                return;
            };
            let later = init[own + 1..].iter().filter(|one| is_sidecar(one));
            let mut later = later.chain(&spec.containers);
            let lives = later
                .find(|one| lives(&one.name, moment))
                .map(|one| &one.name);
            let fine = !ends || grace <= GRACE_OVER || lives.is_none();
            assert!(fine, "{} was stopped before {lives:?}", moment.name);
        }
    }
}

fn newest<'a>(name: &str, moment: &'a Moment) -> Option<&'a ContainerStatus> {
    let all = moment.beside.iter().filter(|one| one.name.as_str() == name);
    all.max_by_key(|one| one.attempt)
}

fn lives(name: &str, moment: &Moment) -> bool {
    newest(name, moment).is_some_and(|one| one.state == ContainerState::Running)
}

/// An init container has succeeded; a sidecar was started.
fn has_done(container: &Container, moment: &Moment) -> bool {
    let mut all = moment
        .beside
        .iter()
        .filter(|one| one.name.as_str() == container.name);
    if is_sidecar(container) {
        all.any(|one| one.started_at.is_some())
    } else {
        all.any(|one| one.exit.as_ref().is_some_and(|exit| exit.code == 0))
    }
}
