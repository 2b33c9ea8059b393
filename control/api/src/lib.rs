//! The API server: handler chain, registry, verbs.
//!
//! A request passes `server` (TLS, limits) → `authn` → `route` → `authz` → one file of `verb` →
//! `registry`'s strategy → the store. Objects are `serde_json::Value`s while they change, and
//! encoded bytes everywhere else: lists and watches splice what the store holds.
#![forbid(unsafe_code)]

mod admission;
mod api;
mod authn;
mod authz;
mod bootstrap;
mod decode;
mod discovery;
mod encode;
mod error;
mod http_side;
mod local;
mod negotiate;
mod node_proxy;
pub mod openapi;
mod options;
mod pages;
pub mod patch;
pub mod pki;
mod present;
mod protobuf;
pub mod registry;
mod route;
mod selection;
pub mod server;
mod service_ip;
pub mod strategy;
pub mod table;
pub mod token;
pub mod validate;
mod verb;

pub use api::{ApiOptions, ApiServer};
pub use node_proxy::{NodeClient, NodeClientError};
pub use server::{Mount, Server, ServerError, ServerOptions};
pub use service_ip::{RangeError, ServiceRange};
