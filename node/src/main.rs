//! The node agent: a kubelet.

fn main() {}
