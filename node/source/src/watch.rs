//! What the kernel tells of a folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use tokio::io::unix::AsyncFd;

/// What became of a folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Files that have their final content, came, or went.
    pub(crate) names: BTreeSet<OsString>,
    /// Names that came into being: files that are still written, or links to complete ones.
    pub(crate) created: BTreeSet<OsString>,
    /// The folder itself is gone, or events were lost: everything must be looked at.
    pub(crate) all: bool,
}

struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// A watch on one folder.
pub(crate) struct FolderWatch {
    inotify: AsyncFd<Descriptor>,
}

impl FolderWatch {
    /// Watches a folder that exists.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let events = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(folder, events)?;
        Ok(Self {
            inotify: registered(inotify)?,
        })
    }

    /// Waits for changes. Cancel safe.
    pub(crate) async fn changes(&mut self) -> io::Result<Changes> {
        loop {
            let mut ready = self.inotify.readable().await?;
            let events = match ready.get_inner().0.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            return Ok(collect(events));
        }
    }
}

#[expect(
    deprecated,
    reason = "the new call is unsafe, which this room must not be; the descriptor is owned by what \
              is registered and lives as long"
)]
fn registered(inotify: Inotify) -> io::Result<AsyncFd<Descriptor>> {
    AsyncFd::new(Descriptor(inotify))
}

fn collect(events: Vec<InotifyEvent>) -> Changes {
    let lost = AddWatchFlags::IN_Q_OVERFLOW
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_IGNORED
        | AddWatchFlags::IN_UNMOUNT;
    let mut changes = Changes::default();
    for event in events {
        changes.all |= event.mask.intersects(lost);
        let Some(name) = event.name else { continue };
        if event.mask.contains(AddWatchFlags::IN_CREATE) {
            changes.created.insert(name);
        } else {
            changes.names.insert(name);
        }
    }
    changes
}
