//! From a pod to calls of the container runtime: what to do, and with which configuration.

pub mod actions;
pub mod backoff;
pub mod config;
pub(crate) mod early;
pub mod env;
pub(crate) mod execute;
pub mod expand;
pub mod hash;
pub mod history;
pub(crate) mod hooks;
pub(crate) mod hosts;
pub(crate) mod last_words;
pub(crate) mod limits;
pub mod places;
pub(crate) mod sandbox;
