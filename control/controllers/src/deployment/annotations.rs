//! The annotations by which a deployment and its sets understand each other.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::strategy::Limits;
use super::wanted_replicas;

/// The number of the template that a set was made for.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Earlier numbers of a set that was rolled back to.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The deployment's replicas when the set was last scaled.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The same plus surge.
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// What `kubectl apply` last applied: to the deployment, not to its sets.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

const NOT_COPIED: [&str; 5] = [
    LAST_APPLIED,
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
];

/// The deployment's replicas as the set knows them.
pub(super) fn desired_replicas(set: &ReplicaSet) -> Option<i32> {
    number(&set.metadata, DESIRED_REPLICAS)
}

/// The most replicas as the set knows them.
pub(super) fn max_replicas(set: &ReplicaSet) -> Option<i32> {
    number(&set.metadata, MAX_REPLICAS)
}

/// The set's revision; zero if it has none.
pub(super) fn revision(meta: &ObjectMeta) -> i64 {
    number(meta, REVISION).unwrap_or(0)
}

/// Notes the present number of replicas on a set.
pub(super) fn set_replicas(meta: &mut ObjectMeta, deployment: &Deployment) {
    let wanted = wanted_replicas(deployment);
    let most = wanted.saturating_add(Limits::of(deployment).surge);
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(DESIRED_REPLICAS.to_owned(), wanted.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), most.to_string());
}

/// Copies the deployment's own annotations to a new set.
pub(super) fn copied(deployment: &Deployment) -> BTreeMap<String, String> {
    let own = deployment.metadata.annotations.iter().flatten();
    own.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Gives the set of the present template its revision; the one that it had goes into its history.
pub(super) fn set_revision(meta: &mut ObjectMeta, revision: i64) {
    let annotations = meta.annotations.get_or_insert_default();
    let before = annotations.insert(REVISION.to_owned(), revision.to_string());
    let Some(before) = before.filter(|before| *before != revision.to_string()) else {
        return;
    };
    let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
    if !history.is_empty() {
        history.push(',');
    }
    history.push_str(&before);
}

fn number<N: std::str::FromStr>(meta: &ObjectMeta, key: &str) -> Option<N> {
    meta.annotations.as_ref()?.get(key)?.parse().ok()
}
