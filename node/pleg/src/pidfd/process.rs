//! The first process of one container, held by a descriptor.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use swiftlet_model::runtime::{FirstProcess, RuntimeEvents};
use tokio::time::timeout;

use crate::PlegError;
use crate::pidfd::Wanted;

/// Longest wait for the runtime's word on one container; it answers within milliseconds.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(2);

/// What a look-up found.
#[derive(Debug)]
pub(crate) enum Found {
    Running(OwnedFd),
    Ended,
}

/// Whether the kernel has pidfds.
pub(crate) fn probe() -> Result<(), PlegError> {
    open(getpid()).map(drop).map_err(refused)
}

/// Asks the runtime, and holds the process.
pub(crate) async fn find(runtime: &dyn RuntimeEvents, wanted: &Wanted) -> Result<Found, PlegError> {
    let asked = runtime.first_process(&wanted.container, wanted.of);
    let process = match timeout(LOOK_UP_LIMIT, asked).await {
        Ok(answer) => answer.map_err(|source| PlegError::FirstProcess { source })?,
        Err(_) => {
            return Err(PlegError::RuntimeHangs {
                limit_s: LOOK_UP_LIMIT.as_secs(),
            });
        }
    };
    match process {
        FirstProcess::Running(process) => hold(process, wanted.container.as_str()),
        FirstProcess::Ended => Ok(Found::Ended),
        FirstProcess::NotYet | FirstProcess::Untold => Err(PlegError::Untold),
    }
}

/// The number may be another process's by now: the descriptor is taken first, and what it refers to
/// must then be in a cgroup that bears the container's id.
fn hold(process: u32, container: &str) -> Result<Found, PlegError> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let number = number.ok_or(PlegError::Untold)?;
    let descriptor = match open(number) {
        Ok(descriptor) => descriptor,
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(Found::Ended),
        Err(error) => return Err(refused(error)),
    };
    match fs::read_to_string(format!("/proc/{process}/cgroup")) {
        Ok(cgroups) if cgroups.contains(container) => Ok(Found::Running(descriptor)),
        // Gone and reaped since, or the number is another's: the runtime's word is old.
        _ => Err(PlegError::Untold),
    }
}

fn open(process: Pid) -> io::Result<OwnedFd> {
    // NONBLOCK would need Linux 5.10, and nobody reads from it.
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

fn refused(source: io::Error) -> PlegError {
    PlegError::Pidfd {
        call: "pidfd_open",
        source,
    }
}
