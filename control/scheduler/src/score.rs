//! Scores: which of the nodes that can take the pod is the best?

mod least_allocated;
mod prefer_no_schedule;

pub(crate) use least_allocated::LeastAllocated;
pub(crate) use prefer_no_schedule::PreferNoSchedule;
