//! The API server's promises: through the local door, over HTTPS, and with real kubectl.

mod https;
mod kubectl;
mod local;
mod support;
