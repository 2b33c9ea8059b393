//! The revisioned store: one writer, snapshots by pointer swap, a journal.
//!
//! The store knows bytes, keys and revisions; no HTTP, no JSON, no Kubernetes meaning.
#![forbid(unsafe_code)]
