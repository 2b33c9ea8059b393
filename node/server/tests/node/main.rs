//! The node's server over real sockets, with a runtime that the tests play.

#[cfg(test)]
mod access;
#[cfg(test)]
mod client;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod runtime;
#[cfg(test)]
mod stand;
#[cfg(test)]
mod streams;
