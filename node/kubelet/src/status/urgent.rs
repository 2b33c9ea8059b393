//! Which changes must be seen at once. Pure.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// Conditions that others wait for.
const WATCHED: [&str; 2] = ["Ready", "ContainersReady"];

/// Whether a change must be seen at once: phase, readiness, or a container that started or ended.
pub fn is_urgent(shown: &PodStatus, new: &PodStatus) -> bool {
    let word = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "Pending".to_owned());
    let flips = |name: &&str| holds(shown, name) != holds(new, name);
    word(shown) != word(new) || WATCHED.iter().any(flips) || {
        let before = runs(shown);
        runs(new).iter().any(|run| !before.contains(run))
    }
}

fn holds(status: &PodStatus, name: &str) -> bool {
    let mut all = status.conditions.iter().flatten();
    all.any(|one| one.type_ == name && one.status == "True")
}

/// The containers that run or have ended: name, attempt, which of both, and whether it is started.
fn runs(status: &PodStatus) -> Vec<(&str, i32, bool, bool)> {
    let all = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .chain(&status.ephemeral_container_statuses);
    let key = |one: &'_ ContainerStatus| {
        let state = one.state.as_ref();
        let running = state.is_some_and(|state| state.running.is_some());
        let ended = state.is_some_and(|state| state.terminated.is_some());
        (running || ended).then_some((running, one.started == Some(true)))
    };
    all.flatten()
        .filter_map(|one| {
            let (running, started) = key(one)?;
            Some((one.name.as_str(), one.restart_count, running, started))
        })
        .collect()
}
