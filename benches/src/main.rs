//! swiftlet-bench: pod start latency against any Kubernetes API.

fn main() {}
