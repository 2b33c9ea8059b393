//! The API server: handler chain, registry, verbs.
