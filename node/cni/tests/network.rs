//! The network against the real kernel: every test makes a host and pods of its own, as network
//! namespaces that vanish with the test. Needs root.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its host or pods has failed"
)]

#[path = "network/attach.rs"]
mod attach;
#[path = "network/cycles.rs"]
mod cycles;
#[path = "network/detach.rs"]
mod detach;
#[path = "network/node.rs"]
mod node;
#[path = "network/ports.rs"]
mod ports;
#[path = "network/reference.rs"]
mod reference;
#[path = "network/shim.rs"]
mod shim;
