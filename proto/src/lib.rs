//! The link between node and control plane, and helpers that both sides of the API share.
#![forbid(unsafe_code)]

pub mod accept;
pub mod amounts;
pub mod claim;
pub mod log_options;
pub mod pod;
pub mod qos;
pub mod quantity;
pub mod relay;
pub mod selector;
pub mod upgrade;

/// NodeLink, generated from `proto/swiftlet/v1/node_link.proto`.
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::pedantic,
    reason = "generated code"
)]
pub mod v1 {
    tonic::include_proto!("swiftlet.v1");
}
