//! The first process of one container, held by a descriptor.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use swiftlet_model::runtime::{FirstProcess, RuntimeEvents};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::PlegError;
use crate::pidfd::Wanted;

/// Longest wait for the runtime's word on one container; it answers within milliseconds.
const LOOK_UP_LIMIT: Duration = Duration::from_secs(2);

/// Times that the runtime is asked in one look-up.
const ASKED_MAX: usize = 2;

/// Wait before it is asked again: it learns of an end some milliseconds after the kernel.
const ASK_PAUSE: Duration = Duration::from_millis(50);

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

/// Whether the runtime's process ids mean the same processes here. In another pid namespace each
/// number would be somebody else's or nobody's, and every container would seem to have ended.
pub(crate) async fn same_namespace(runtime: &dyn RuntimeEvents) -> Result<(), PlegError> {
    let daemon = match timeout(LOOK_UP_LIMIT, runtime.daemon()).await {
        Ok(answer) => answer.map_err(|source| PlegError::NoAnswer { source })?,
        Err(_) => {
            return Err(PlegError::Silent {
                limit_s: LOOK_UP_LIMIT.as_secs(),
            });
        }
    };
    let process = daemon.and_then(|process| i32::try_from(process).ok());
    let number = process.and_then(Pid::from_raw);
    let number = number.ok_or(PlegError::OtherPidNamespace)?;
    open(number).map_err(|_| PlegError::OtherPidNamespace)?;
    // A namespace within this one has a number here, but counts by itself. Where the link may not
    // be read, the number alone must do.
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid")).ok();
    let theirs = namespace(&number.as_raw_nonzero().to_string());
    match (namespace("self"), theirs) {
        (Some(ours), Some(theirs)) if ours != theirs => Err(PlegError::OtherPidNamespace),
        _ => Ok(()),
    }
}

/// Asks the runtime, and holds the process. A number that nobody has is an end only if the runtime,
/// asked again, says so too.
pub(crate) async fn find(runtime: &dyn RuntimeEvents, wanted: &Wanted) -> Result<Found, PlegError> {
    let container = wanted.container.as_str();
    for asked in 0..ASKED_MAX {
        if asked > 0 {
            sleep(ASK_PAUSE).await;
        }
        match ask(runtime, wanted).await? {
            FirstProcess::Running(process) => {
                if let Some(descriptor) = hold(process, container).await? {
                    return Ok(Found::Running(descriptor));
                }
            }
            FirstProcess::Ended => return Ok(Found::Ended),
            FirstProcess::NotYet | FirstProcess::Untold => break,
        }
    }
    Err(PlegError::Untold)
}

async fn ask(runtime: &dyn RuntimeEvents, wanted: &Wanted) -> Result<FirstProcess, PlegError> {
    let asked = runtime.first_process(&wanted.container, wanted.of);
    match timeout(LOOK_UP_LIMIT, asked).await {
        Ok(answer) => answer.map_err(|source| PlegError::FirstProcess { source }),
        Err(_) => Err(PlegError::RuntimeHangs {
            limit_s: LOOK_UP_LIMIT.as_secs(),
        }),
    }
}

/// The number may be another process's by now: the descriptor is taken first, and what it refers to
/// must then be in a cgroup that bears the container's id. `None` if it is not the container's.
async fn hold(process: u32, container: &str) -> Result<Option<OwnedFd>, PlegError> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let number = number.ok_or(PlegError::Untold)?;
    let descriptor = match open(number) {
        Ok(descriptor) => descriptor,
        Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(None),
        Err(error) => return Err(refused(error)),
    };
    // The kernel may have to wait for a lock here that is held while cgroups are changed.
    let read = spawn_blocking(move || fs::read_to_string(format!("/proc/{process}/cgroup")));
    match read.await {
        Ok(Ok(cgroups)) if cgroups.contains(container) => Ok(Some(descriptor)),
        // Gone and reaped since, or the number is another's: the runtime's word is old.
        _ => Ok(None),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::FakeRuntime;
    use swiftlet_model::runtime::ProcessOf;

    #[tokio::test]
    async fn a_number_that_nobody_has_is_no_end_while_the_runtime_says_that_it_runs() {
        let mut ended = std::process::Command::new("true").spawn().expect("it runs");
        ended.wait().expect("it ends");
        let runtime = FakeRuntime::default();
        runtime.claim("c", ended.id());
        let wanted = Wanted {
            container: "c".into(),
            pod: "u".into(),
            of: ProcessOf::Container,
        };
        let found = find(&runtime, &wanted).await;
        assert!(matches!(found, Err(PlegError::Untold)), "{found:?}");
        runtime.set(&[]);
        let found = find(&runtime, &wanted).await;
        assert!(matches!(found, Ok(Found::Ended)), "{found:?}");
    }

    #[tokio::test]
    async fn a_runtime_that_has_no_number_here_counts_elsewhere() {
        let runtime = FakeRuntime::default();
        same_namespace(&runtime).await.expect("it is this process");
        runtime.move_away();
        let error = same_namespace(&runtime).await.expect_err("it is elsewhere");
        assert!(matches!(error, PlegError::OtherPidNamespace), "{error}");
    }
}
