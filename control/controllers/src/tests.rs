//! The controllers against an API in memory, with nodes that are simulated.

mod cluster;
mod deployment;
mod garbage;
mod namespace;
mod node;
mod persistent_volume;
mod replica_set;
mod root_ca;
