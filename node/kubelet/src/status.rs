//! What the API shows of a pod: made from what is known (pure), then published.

pub mod conditions;
pub mod containers;
pub mod generate;
pub mod phase;
pub mod publish;
