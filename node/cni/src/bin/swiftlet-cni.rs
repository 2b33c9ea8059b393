//! The CNI plugin that containerd runs.

fn main() {}
