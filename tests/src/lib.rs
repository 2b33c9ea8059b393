//! The stack as a user starts it, and the promises that it keeps.
#![forbid(unsafe_code)]

pub mod containerd;
pub mod demo;
pub mod hang;
pub mod images;
pub mod kubectl;
pub mod leftovers;
pub mod pods;
pub mod process;
pub mod programs;
pub mod registry;
pub mod stack;
