//! Descriptors that tell when they are ready: eventfd, triggers of pressure.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Has tokio tell when the descriptor is ready for this.
///
/// # Errors
/// The kernel's, if the descriptor cannot be waited for.
pub fn watch(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is an open descriptor for as long as it lives, always names the same
    // one, and is closed only when it is dropped; the `AsyncFd` owns it until then and hands out
    // shared borrows alone.
    let watched = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    watched.map_err(io::Error::from)
}
