//! Watcher, reflector, informer, lister and work queue over the API door.
//!
//! The scheduler, the controllers and the node link are ordinary clients of the API: they see [`api::Api`]
//! and never the store's insides. In process the door is the API server itself, without a socket.
#![forbid(unsafe_code)]

pub mod api;
