//! Network namespaces: open, create, and run a function inside one.
//!
//! A network namespace belongs to a thread, not to a process. So code enters one only on a thread
//! of its own that ends afterwards: an early return can then never leave a thread that others use
//! in the wrong namespace. What is opened inside (a netlink socket, for instance) stays bound to
//! that namespace and may be handed back and used from any thread.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

/// Stack of the thread that enters a namespace, in bytes. It makes a few kernel requests.
const STACK_BYTES: usize = 256 * 1024;

/// The file that stands for the calling thread's network namespace.
const OWN_NETNS: &str = "/proc/thread-self/ns/net";

/// What can go wrong on the way into a network namespace.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// The path does not exist or cannot be opened.
    #[error("cannot open the network namespace {path}")]
    Open {
        /// The namespace's path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// No thread could be started.
    #[error("cannot start a thread for a network namespace")]
    Spawn(#[source] io::Error),
    /// `setns` was refused. EINVAL: the file is no network namespace (another mount namespace?).
    #[error("cannot enter the network namespace")]
    Enter(#[source] Errno),
    /// `unshare` was refused.
    #[error("cannot create a network namespace")]
    Create(#[source] Errno),
    /// The function that ran inside panicked.
    #[error("the function inside the network namespace panicked")]
    Panicked,
}

/// Opens the namespace at `path`. The namespace lives at least as long as the file is open.
pub fn open(path: &Path) -> Result<OwnedFd, NetnsError> {
    match File::open(path) {
        Ok(file) => Ok(file.into()),
        Err(source) => Err(NetnsError::Open {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Creates a namespace that lives until the returned file and the last thread in it are gone.
pub fn create() -> Result<OwnedFd, NetnsError> {
    on_own_thread(|| {
        unshare(CloneFlags::CLONE_NEWNET).map_err(NetnsError::Create)?;
        open(Path::new(OWN_NETNS))
    })?
}

/// Runs `work` inside the namespace, on a thread of its own, and waits for it.
pub fn run_in<T: Send>(
    netns: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NetnsError> {
    on_own_thread(|| {
        enter(netns)?;
        Ok(work())
    })?
}

/// Moves the calling thread into the namespace for good.
///
/// Only for a thread that was started for this namespace; everything else uses [`run_in`].
pub fn enter(netns: impl AsFd) -> Result<(), NetnsError> {
    setns(netns, CloneFlags::CLONE_NEWNET).map_err(NetnsError::Enter)
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
    thread::scope(|scope| {
        thread::Builder::new()
            .name("netns".to_owned())
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .map_err(NetnsError::Spawn)?
            .join()
            .map_err(|_| NetnsError::Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_inode() -> u64 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(OWN_NETNS).unwrap().ino()
    }

    #[test]
    fn work_runs_inside_and_the_caller_stays_outside() {
        let before = own_inode();
        let netns = create().unwrap();
        let inside = run_in(netns.as_fd(), own_inode).unwrap();
        assert_ne!(inside, before);
        assert_eq!(own_inode(), before);
        assert_eq!(run_in(netns.as_fd(), own_inode).unwrap(), inside);
    }

    #[test]
    fn a_missing_namespace_is_named() {
        let error = open(Path::new("/nowhere/netns")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/netns"));
    }

    #[test]
    fn a_file_that_is_no_namespace_is_refused() {
        let file = open(Path::new("/dev/null")).unwrap();
        assert!(matches!(
            run_in(file.as_fd(), || ()),
            Err(NetnsError::Enter(Errno::EINVAL))
        ));
    }

    #[test]
    fn a_panic_inside_is_an_error_outside() {
        let netns = create().unwrap();
        let outcome = run_in(netns.as_fd(), || panic!("expected by the test"));
        assert!(matches!(outcome, Err::<(), _>(NetnsError::Panicked)));
    }
}
