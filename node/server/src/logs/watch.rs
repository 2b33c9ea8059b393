//! What the kernel tells of the folder of a log.

use std::ffi::OsStr;
use std::io;

use swiftlet_sys::inotify::{AddWatchFlags, FolderEvents, InotifyEvent};

use super::folder::LogFolder;

/// What became of a log since it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Something was written, or a file came or went.
    pub(crate) written: bool,
    /// A writer has closed the file, or the folder is gone: the container has ended, perhaps.
    pub(crate) closed: bool,
    /// A writer has closed a file that was moved away.
    pub(crate) old_closed: bool,
}

/// A watch on one log.
pub(crate) struct LogWatch {
    events: FolderEvents,
    name: String,
}

impl LogWatch {
    /// Watches the folder of a log. Closing is what tells of a container's end: the runtime holds
    /// the file open for as long as it takes output, and closes it when all of it is written.
    pub(crate) fn new(folder: &LogFolder, log: &str) -> io::Result<Self> {
        let events = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF;
        Ok(Self {
            events: FolderEvents::of(&folder.path(), events)?,
            name: log.to_owned(),
        })
    }

    /// Waits for changes. Cancel safe.
    pub(crate) async fn changes(&mut self) -> io::Result<Changes> {
        loop {
            let mut changes = Changes::default();
            changes.add(OsStr::new(&self.name), &self.events.next().await?);
            if changes != Changes::default() {
                return Ok(changes);
            }
        }
    }
}

impl Changes {
    /// All that either of them tells.
    pub(crate) fn join(&mut self, other: Self) {
        self.written |= other.written;
        self.closed |= other.closed;
        self.old_closed |= other.old_closed;
    }

    fn add(&mut self, log: &OsStr, events: &[InotifyEvent]) {
        // Events were lost, or the folder is gone: everything must be looked at.
        let all = AddWatchFlags::IN_Q_OVERFLOW
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_IGNORED
            | AddWatchFlags::IN_UNMOUNT;
        for event in events {
            if event.mask.intersects(all) {
                (self.written, self.closed) = (true, true);
            }
            let Some(name) = event.name.as_deref() else {
                continue;
            };
            if name != log {
                // Logs of other attempts are none of ours.
                let is_old = name.as_encoded_bytes().starts_with(log.as_encoded_bytes());
                let is_closed = event.mask.contains(AddWatchFlags::IN_CLOSE_WRITE);
                self.old_closed |= is_old && is_closed;
                continue;
            }
            self.written = true;
            // A rotation that found the container ended moves the file back: it was closed under
            // the other name.
            self.closed |= event.mask.intersects(
                AddWatchFlags::IN_CLOSE_WRITE
                    | AddWatchFlags::IN_DELETE
                    | AddWatchFlags::IN_MOVED_TO,
            );
        }
    }
}
