//! Fakes behind the doors, and a stand that runs a kubelet over them on paused time.

pub(crate) mod control_plane;
mod histories;
mod journeys;
pub(crate) mod node;
mod outages;
pub(crate) mod runtime;
pub(crate) mod stand;
