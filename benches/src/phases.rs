//! Where the time of a start goes on the node: the phases that the node's own log tells of, counted
//! from the moment at which it received the pod. Those of volumes, image and configuration lie
//! between the sandbox's beginning and its end where they are prepared beside it.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use swiftlet_tests::demo::timeline::{Timelines, read_log};

use crate::stats::Samples;

/// As the node logs them, in the order in which a plain start reaches them.
const PHASES: [&str; 8] = [
    "cgroup_ready",
    "sandbox_asked",
    "volumes_ready",
    "image_ready",
    "configured",
    "sandbox_up",
    "container_started",
    "start_answered",
];

/// The samples of each phase over the pods of these names.
pub(crate) fn phases(log: &Path, is_ours: impl Fn(&str) -> bool) -> Result<Vec<Samples>> {
    let mut timelines = Timelines::new();
    read_log(log, &mut timelines)?;
    let ours = timelines.iter().filter(|(name, _)| is_ours(name));
    let ours: Vec<_> = ours.map(|(_, moments)| moments).collect();
    let samples = PHASES.into_iter().map(|phase| {
        let mut samples = Samples::new(format!("node_{phase}"));
        for moments in &ours {
            let both = moments.get("received").zip(moments.get(phase));
            if let Some((start, at)) = both {
                samples.push(Duration::from_micros(at.saturating_sub(*start)));
            }
        }
        samples
    });
    Ok(samples.filter(|samples| samples.len() > 0).collect())
}
