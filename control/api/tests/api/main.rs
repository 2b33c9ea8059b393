//! The API server's promises: through the local door, over HTTPS, and with real kubectl.

#[cfg(test)]
mod admission;
#[cfg(test)]
mod client;
#[cfg(test)]
mod https;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod local;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod protobuf;
#[cfg(test)]
mod services;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tokens;
