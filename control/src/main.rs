//! The control plane: API server, store, controllers, scheduler.

fn main() {}
