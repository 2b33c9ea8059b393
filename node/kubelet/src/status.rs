//! What the API shows of a pod: made from what is known (pure), then published.

pub(crate) mod addresses;
pub mod conditions;
pub mod containers;
pub mod failure;
pub mod generate;
pub(crate) mod lists;
pub mod phase;
pub mod publish;
pub mod urgent;

#[cfg(test)]
mod tests;
