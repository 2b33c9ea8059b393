//! Watcher, reflector, informer, lister and work queue over the API door.
//!
//! The scheduler, the controllers and the node link are ordinary clients of the API: they see
//! [`api::Api`] and never the store's insides. In process the door is the API server itself,
//! without a socket.
//!
//! ```text
//! Api::list + Api::watch → watcher → reflector (Writer → Store, a snapshot that readers load)
//!                                  → informer (old and new, one bounded queue per subscriber)
//!                                  → work_queue (keys: once each, one worker per key)
//! ```
#![forbid(unsafe_code)]

pub mod api;
pub mod backoff;
pub mod client;
pub mod error;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod informer;
pub mod recorder;
pub mod reflector;
pub mod watcher;
pub mod work_queue;

pub use client::{Client, Object, ObjectKey};
pub use error::ClientError;

#[cfg(test)]
mod tests;
