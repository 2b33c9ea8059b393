use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A set as the simulation sees it: `ready` of its `wanted` pods are available.
#[derive(Clone, Debug)]
struct Simulated {
    wanted: i32,
    ready: i32,
}

fn deployment(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {},
            "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {
                "maxSurge": surge, "maxUnavailable": unavailable}},
        },
    }))
    .unwrap()
}

fn set(index: usize, simulated: &Simulated) -> Arc<ReplicaSet> {
    let mut set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": index.to_string(), "uid": index.to_string()},
        "spec": {"replicas": simulated.wanted, "selector": {}},
    }))
    .unwrap();
    set.status = Some(ReplicaSetStatus {
        available_replicas: Some(simulated.ready),
        replicas: simulated.wanted,
        ..ReplicaSetStatus::default()
    });
    Arc::new(set)
}

/// The last one is the new set.
fn sets(simulated: &[Simulated]) -> Sets {
    let mut old: Vec<_> = simulated
        .iter()
        .enumerate()
        .map(|(index, one)| set(index, one))
        .collect();
    let new = old.pop();
    Sets { new, old }
}

fn ready(simulated: &[Simulated]) -> i32 {
    simulated.iter().map(|one| one.ready).sum()
}

fn wanted(simulated: &[Simulated]) -> i32 {
    simulated.iter().map(|one| one.wanted).sum()
}

/// Takes one step and checks both promises.
fn step(deployment: &Deployment, simulated: &mut [Simulated]) -> Result<bool, TestCaseError> {
    let limits = Limits::of(deployment);
    let replicas = wanted_replicas(deployment);
    let (most, least) = (replicas + limits.surge, replicas - limits.unavailable);
    let (before, ready_before) = (wanted(simulated), ready(simulated));
    let scales = plan(deployment, &sets(simulated));
    for scale in &scales {
        let index: usize = scale.set.metadata.uid.as_deref().unwrap().parse().unwrap();
        let one = &mut simulated[index];
        one.wanted = scale.replicas;
        // The worst case: a set that shrinks keeps no unavailable pod longer than it must, as
        // ranked deletion gives up those that are not ready first.
        one.ready = one.ready.min(scale.replicas);
    }
    prop_assert!(
        wanted(simulated) <= before.max(most),
        "more pods than surge allows"
    );
    prop_assert!(
        ready(simulated) >= ready_before.min(least),
        "too few available pods"
    );
    Ok(!scales.is_empty())
}

proptest! {
    #[test]
    fn a_rolling_update_keeps_its_promises_and_ends(
        replicas in 0_i32..12,
        surge in 0_i32..5,
        unavailable in 0_i32..5,
        olds in prop::collection::vec(0_i32..12, 1..4),
        readiness in prop::collection::vec(0_usize..4, 400),
    ) {
        let deployment = deployment(replicas, surge, unavailable);
        let mut simulated: Vec<_> =
            olds.iter().map(|count| Simulated { wanted: *count, ready: *count }).collect();
        simulated.push(Simulated { wanted: 0, ready: 0 });
        let last = simulated.len() - 1;
        for turn in readiness {
            step(&deployment, &mut simulated)?;
            // One pod of some set becomes ready.
            let index = turn % simulated.len();
            let one = &mut simulated[index];
            one.ready = (one.ready + 1).min(one.wanted);
            let one = &mut simulated[last];
            one.ready = (one.ready + 1).min(one.wanted);
        }
        prop_assert_eq!(simulated[last].wanted, replicas);
        prop_assert_eq!(wanted(&simulated), replicas, "no old pod is left");
        prop_assert!(!step(&deployment, &mut simulated)?, "and nothing is left to do");
    }
}
