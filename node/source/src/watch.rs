//! What the kernel tells of a folder.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

use swiftlet_sys::inotify::{AddWatchFlags, FolderEvents, InotifyEvent};

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

/// A watch on one folder.
pub(crate) struct FolderWatch {
    events: FolderEvents,
}

impl FolderWatch {
    /// Watches a folder that exists.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let events = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        Ok(Self {
            events: FolderEvents::of(folder, events)?,
        })
    }

    /// Waits for changes. Cancel safe.
    pub(crate) async fn changes(&mut self) -> io::Result<Changes> {
        Ok(collect(self.events.next().await?))
    }
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
