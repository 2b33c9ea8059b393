//! Where a test lets this process die: before and after everything that outlives it.
//!
//! Every change of the kernel's state goes through `netlink/socket.rs`, every change on disk
//! through `disk.rs`; both say so here. A new step of ADD or DEL is a place to die at without
//! anybody having to think of it. Without the feature `failpoints` this is an empty function.
//!
//! No crate: those that exist switch places by names that somebody has to list, and what is wanted
//! here is every place in turn, found by running once.

/// Where the places that were passed are written down, a line each.
#[cfg(feature = "failpoints")]
pub const LOG_VARIABLE: &str = "SWIFTLET_FAILPOINT_LOG";
/// The number of the place to die at, counted from 1.
#[cfg(feature = "failpoints")]
pub const DIE_VARIABLE: &str = "SWIFTLET_FAILPOINT_DIE";

/// Passes a place.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) fn pass(_when: &'static str, _step: &dyn std::fmt::Display) {}

/// Passes a place, or dies there as by `kill -9`: nothing is dropped, nothing is flushed.
#[cfg(feature = "failpoints")]
pub(crate) fn pass(when: &'static str, step: &dyn std::fmt::Display) {
    use std::io::Write;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static PASSED: AtomicUsize = AtomicUsize::new(0);
    let Ok(log) = std::env::var(LOG_VARIABLE) else {
        return;
    };
    let number = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(log)
        .expect("the test's folder is there");
    writeln!(file, "{when} {step}").expect("the test's folder has room");
    let die_at = std::env::var(DIE_VARIABLE).ok();
    if die_at.and_then(|text| text.parse().ok()) == Some(number) {
        let own = nix::unistd::Pid::this();
        nix::sys::signal::kill(own, nix::sys::signal::SIGKILL).expect("a process may kill itself");
        // The other threads have not noticed yet, and this one must not go on.
        loop {
            std::thread::park();
        }
    }
}
