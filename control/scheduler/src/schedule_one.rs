//! One scheduling decision: pure.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

use crate::framework::{Cycle, Rejection};
use crate::node_info::{NodeInfo, Snapshot};
use crate::profile::Profile;

/// Where a pod shall go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: String,
    /// Its score, as the sum of weighted scores.
    pub score: i64,
    /// How many nodes could take the pod.
    pub feasible: usize,
}

/// Why no node can take the pod. It prints as Kubernetes prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FitError {
    /// How many nodes there are.
    pub nodes: usize,
    /// Why each of them cannot.
    pub rejections: BTreeMap<String, Rejection>,
    /// A rejection of the pod on all nodes.
    pub everywhere: Option<Rejection>,
    /// A node on which the pod will fit later.
    pub nominated: Option<String>,
    /// What PostFilter plugins had to say.
    pub post_filter: String,
}

/// Finds the best node for a pod. Of equal nodes the first by name is taken: assumed pods count at
/// once, so that the next pod finds it less empty.
pub fn schedule_one(
    profile: &Profile,
    snapshot: &Snapshot,
    pod: &Pod,
) -> Result<Placement, FitError> {
    let mut cycle = Cycle::default();
    let mut error = FitError {
        nodes: snapshot.len(),
        ..FitError::default()
    };
    for plugin in &profile.pre_filter {
        if let Err(rejection) = plugin.pre_filter(&mut cycle, pod, snapshot) {
            error.everywhere = Some(rejection);
            return Err(error);
        }
    }
    let mut feasible = Vec::new();
    for node in snapshot.nodes() {
        match filter(profile, &cycle, pod, node) {
            Ok(()) => feasible.push(node),
            Err(rejection) => {
                error.rejections.insert(node.name().to_owned(), rejection);
            }
        }
    }
    if feasible.is_empty() {
        post_filter(profile, &cycle, pod, snapshot, &mut error);
        return Err(error);
    }
    Ok(best(profile, &mut cycle, pod, &feasible))
}

fn filter(profile: &Profile, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection> {
    profile
        .filter
        .iter()
        .try_for_each(|plugin| plugin.filter(cycle, pod, node))
}

fn post_filter(
    profile: &Profile,
    cycle: &Cycle,
    pod: &Pod,
    snapshot: &Snapshot,
    error: &mut FitError,
) {
    for plugin in &profile.post_filter {
        let verdict = plugin.post_filter(cycle, pod, snapshot, &error.rejections);
        error.post_filter.push_str(&verdict.message);
        if verdict.nominated.is_some() {
            error.nominated = verdict.nominated;
            return;
        }
    }
}

/// The best of at least one node.
fn best(profile: &Profile, cycle: &mut Cycle, pod: &Pod, feasible: &[&NodeInfo]) -> Placement {
    let mut totals = vec![0_i64; feasible.len()];
    // With one candidate there is nothing to compare.
    if feasible.len() > 1 {
        for plugin in &profile.pre_score {
            plugin.pre_score(cycle, pod, feasible);
        }
        for (weight, plugin) in &profile.score {
            let score = |node: &&NodeInfo| plugin.score(cycle, pod, node);
            let mut scores: Vec<i64> = feasible.iter().map(score).collect();
            plugin.normalize(&mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total += weight * score;
            }
        }
    }
    let mut chosen = 0;
    for (index, total) in totals.iter().enumerate() {
        if *total > totals[chosen] {
            chosen = index;
        }
    }
    Placement {
        node: feasible[chosen].name().to_owned(),
        score: totals[chosen],
        feasible: feasible.len(),
    }
}

impl FitError {
    /// The plugins whose rejections must change before another attempt makes sense.
    pub fn plugins(&self) -> Vec<&'static str> {
        let rejections = self.rejections.values().chain(&self.everywhere);
        let mut plugins: Vec<_> = rejections.map(|rejection| rejection.plugin).collect();
        plugins.sort_unstable();
        plugins.dedup();
        plugins
    }
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available:", self.nodes)?;
        let mut counts = BTreeMap::<&str, usize>::new();
        for reason in self
            .rejections
            .values()
            .flat_map(|rejection| &rejection.reasons)
        {
            *counts.entry(reason).or_default() += 1;
        }
        let mut reasons: Vec<String> = counts
            .into_iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        reasons.sort_unstable();
        reasons.extend(
            self.everywhere
                .iter()
                .flat_map(|all| all.reasons.iter().cloned()),
        );
        write!(f, " {}.", reasons.join(", "))?;
        if !self.post_filter.is_empty() {
            write!(f, " {}", self.post_filter)?;
        }
        Ok(())
    }
}

impl std::error::Error for FitError {}
