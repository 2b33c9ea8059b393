//! The network against the real kernel: every test makes a host and pods of its own, as network
//! namespaces that vanish with the test. Needs root.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot make its host or pods has failed"
)]

#[path = "network/attach.rs"]
mod attach;
#[path = "network/bounds.rs"]
mod bounds;
#[path = "network/chain.rs"]
mod chain;
#[cfg(feature = "failpoints")]
#[path = "network/crash.rs"]
mod crash;
#[path = "network/cycles.rs"]
mod cycles;
#[path = "network/density.rs"]
mod density;
#[path = "network/detach.rs"]
mod detach;
#[path = "network/dual_stack.rs"]
mod dual_stack;
#[path = "network/leftovers.rs"]
mod leftovers;
#[path = "network/node.rs"]
mod node;
#[path = "network/owners.rs"]
mod owners;
#[path = "network/ports.rs"]
mod ports;
#[path = "network/ports6.rs"]
mod ports6;
#[path = "network/reference.rs"]
mod reference;
#[path = "network/rules.rs"]
mod rules;
#[path = "network/runtime.rs"]
mod runtime;
#[path = "network/safety.rs"]
mod safety;
#[path = "network/shim.rs"]
mod shim;
#[path = "network/state.rs"]
mod state;
#[path = "network/switch.rs"]
mod switch;
