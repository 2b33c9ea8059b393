//! What becomes of the files of a folder, from the kernel.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{InitFlags, Inotify};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use nix::sys::inotify::{AddWatchFlags, InotifyEvent};

/// A watch on one folder.
pub struct FolderEvents(AsyncFd<Watched>);

struct Watched(Inotify);

impl AsRawFd for Watched {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl FolderEvents {
    /// Watches a folder that exists for these events.
    ///
    /// # Errors
    /// The kernel's: there is no such folder, or the user has too many watches.
    pub fn of(folder: &Path, events: AddWatchFlags) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        inotify.add_watch(folder, events | AddWatchFlags::IN_ONLYDIR)?;
        // SAFETY: `Inotify` owns an open descriptor for as long as it lives and always names the
        // same one; the `AsyncFd` owns it until it is dropped and hands out shared borrows alone.
        let watched =
            unsafe { AsyncFd::register_with_interest(Watched(inotify), Interest::READABLE) };
        Ok(Self(watched.map_err(io::Error::from)?))
    }

    /// Waits until there are events, and takes all of them. Cancel safe.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn next(&mut self) -> io::Result<Vec<InotifyEvent>> {
        loop {
            let mut ready = self.0.readable().await?;
            let mut all = Vec::new();
            loop {
                match ready.get_inner().0.read_events() {
                    Ok(events) => all.extend(events),
                    Err(Errno::EAGAIN) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            ready.clear_ready();
            if !all.is_empty() {
                return Ok(all);
            }
        }
    }
}
