//! Fakes behind the doors, and a stand that runs a kubelet over them on paused time.

pub(crate) mod control_plane;
mod deadlines;
mod events;
mod histories;
mod journeys;
mod last_words;
mod lifecycles;
pub(crate) mod logs;
mod mounts;
pub(crate) mod node;
mod outages;
mod pressure;
pub(crate) mod probes;
mod probing;
mod promptness;
mod resources;
pub(crate) mod runtime;
pub(crate) mod stand;
mod static_pods;
pub(crate) mod stats;
