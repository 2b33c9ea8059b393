//! The nouns of the node and the doors between its rooms.
//!
//! `node/kubelet` decides and knows only these doors; `node/cri`, `node/pleg`, `node/volume`,
//! `node/link` and `node/src` stand behind them. Nothing here performs I/O.
#![forbid(unsafe_code)]

pub mod cgroups;
pub mod checkpoints;
pub mod clock;
pub mod control_plane;
pub mod credentials;
pub mod downward;
pub mod events;
pub mod ids;
pub mod lifecycle;
pub mod logs;
pub mod node_stats;
pub mod pod_board;
pub mod probes;
pub mod runtime;
pub mod shutdown;
pub mod sources;
pub mod streaming;
pub mod volumes;

pub use futures::future::BoxFuture;
pub use k8s_openapi::api::core::v1::Pod;
