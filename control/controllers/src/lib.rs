//! Deployment, ReplicaSet and garbage collection.
