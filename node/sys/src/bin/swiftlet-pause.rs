//! The process that holds a pod's namespaces.
//!
//! It sleeps, collects the children that orphans become in a shared process namespace, and ends on
//! SIGTERM or SIGINT. It stands alone on the standard library, because it is also compiled by
//! itself, statically linked, for the pause image: a pod costs what this program costs.

use std::ffi::c_int;
use std::ptr::{from_mut, null_mut};

/// `sigset_t` of glibc and musl: 1,024 bits.
#[repr(C, align(8))]
struct SignalSet([u8; 128]);

const SIGINT: c_int = 2;
const SIGTERM: c_int = 15;
const SIGCHLD: c_int = 17;
const SIG_BLOCK: c_int = 0;
const WNOHANG: c_int = 1;

// SAFETY: the declarations are those of POSIX and the constants those of Linux on x86-64 and arm64.
unsafe extern "C" {
    fn sigemptyset(set: *mut SignalSet) -> c_int;
    fn sigaddset(set: *mut SignalSet, signal: c_int) -> c_int;
    fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn sigwait(set: *const SignalSet, signal: *mut c_int) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
}

fn main() {
    let signals = block(&[SIGINT, SIGTERM, SIGCHLD]);
    loop {
        // Children that ended before the signals were blocked are collected in the first round.
        collect_children();
        if wait(&signals) != SIGCHLD {
            return;
        }
    }
}

/// Blocks the signals, so that they wait for [`wait`]. As process 1 of a namespace we would else
/// never see SIGTERM: the kernel drops what process 1 has no handler for.
fn block(signals: &[c_int]) -> SignalSet {
    let mut set = SignalSet([0; 128]);
    // SAFETY: the set is as large as the C library's, and lives through the calls.
    unsafe {
        sigemptyset(from_mut(&mut set));
        for &signal in signals {
            sigaddset(from_mut(&mut set), signal);
        }
        sigprocmask(SIG_BLOCK, &raw const set, null_mut());
    }
    set
}

/// Sleeps until one of the signals arrives, and answers which.
fn wait(signals: &SignalSet) -> c_int {
    let mut signal = SIGCHLD;
    // SAFETY: both pointers are valid during the call.
    unsafe { sigwait(signals, from_mut(&mut signal)) };
    signal
}

fn collect_children() {
    // SAFETY: a null status is allowed; WNOHANG makes the call return when nobody has ended.
    while unsafe { waitpid(-1, null_mut(), WNOHANG) } > 0 {}
}
