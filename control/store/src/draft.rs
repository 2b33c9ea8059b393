//! The writer's working copy: the state as it will be when the batch is on disk.

use std::sync::Arc;

use bytes::Bytes;

use crate::journal::frame::Frame;
use crate::journal::record;
use crate::log::Log;
use crate::snapshot::{Map, State, Stored};
use crate::write::{Durability, Expect, Op, Template};
use crate::{Change, ChangeKind, Entry, Key, Limits, Revision, WriteError};

/// Collects a batch. Dropped if the journal refuses it: then nothing has happened.
pub(crate) struct Draft<'a> {
    map: Map,
    log: Log,
    revision: Revision,
    frame: Frame,
    limits: &'a Limits,
    /// Whether there is a journal at all.
    journalled: bool,
}

/// The state after a batch, and the frame that must be on disk before anybody sees it.
pub(crate) struct Drafted {
    pub(crate) map: Map,
    pub(crate) log: Log,
    pub(crate) revision: Revision,
    pub(crate) frame: Frame,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(state: &State, frame: Frame, limits: &'a Limits, journalled: bool) -> Self {
        let State {
            map, log, revision, ..
        } = state.clone();
        Self {
            map,
            log,
            revision,
            frame,
            limits,
            journalled,
        }
    }

    pub(crate) fn finish(self) -> Drafted {
        let Self {
            map,
            log,
            revision,
            frame,
            ..
        } = self;
        Drafted {
            map,
            log,
            revision,
            frame,
        }
    }

    /// Whether the operation needs the journal.
    pub(crate) fn is_durable(&self, op: &Op) -> bool {
        if !self.journalled {
            return false;
        }
        let stored = self.map.get(op.key()).is_some_and(|stored| stored.durable);
        match op {
            Op::Put { durability, .. } => stored || *durability == Durability::Journal,
            Op::Delete { .. } => stored,
        }
    }

    /// Carries out one operation. One that is refused takes no revision.
    pub(crate) fn apply(&mut self, op: &Op) -> Result<Entry, WriteError> {
        let durable = self.is_durable(op);
        match op {
            Op::Put {
                key, value, expect, ..
            } => self.put(key, value, *expect, durable),
            Op::Delete { key, expect, last } => self.delete(key, last.as_ref(), *expect, durable),
        }
    }

    fn put(
        &mut self,
        key: &Key,
        value: &Template,
        expect: Expect,
        durable: bool,
    ) -> Result<Entry, WriteError> {
        value.check(self.limits.object_bytes)?;
        let current = self.map.get(key).map(|stored| &stored.entry);
        check(expect, current)?;
        let revision = self.revision.next();
        let created = current.map_or(revision, |current| current.created);
        let previous = current.map(|current| current.value.clone());
        let entry = Entry {
            key: key.clone(),
            value: value.fill(revision),
            revision,
            created,
        };
        if durable {
            record::put_entry(self.frame.payload(), &entry);
        }
        let stored = Arc::new(Stored {
            entry: entry.clone(),
            durable,
        });
        self.map.insert(key.clone(), stored);
        let kind = if previous.is_some() {
            ChangeKind::Updated
        } else {
            ChangeKind::Created
        };
        self.record(&entry, kind, previous);
        Ok(entry)
    }

    fn delete(
        &mut self,
        key: &Key,
        last: Option<&Template>,
        expect: Expect,
        durable: bool,
    ) -> Result<Entry, WriteError> {
        if let Some(last) = last {
            last.check(self.limits.object_bytes)?;
        }
        let current = self.map.get(key).map(|stored| &stored.entry);
        check(expect, current)?;
        let Some(current) = current else {
            return Err(WriteError::Conflict { current: None });
        };
        let revision = self.revision.next();
        let previous = current.value.clone();
        let entry = Entry {
            key: key.clone(),
            value: last.map_or_else(|| previous.clone(), |last| last.fill(revision)),
            revision,
            created: current.created,
        };
        if durable {
            record::put_delete(self.frame.payload(), key, revision);
        }
        self.map.remove(key);
        self.record(&entry, ChangeKind::Deleted, Some(previous));
        Ok(entry)
    }

    fn record(&mut self, entry: &Entry, kind: ChangeKind, previous: Option<Bytes>) {
        self.revision = entry.revision;
        let Entry {
            key,
            value,
            revision,
            ..
        } = entry.clone();
        self.log.push(
            Change {
                revision,
                key,
                kind,
                value,
                previous,
            },
            self.limits,
        );
    }
}

fn check(expect: Expect, current: Option<&Entry>) -> Result<(), WriteError> {
    let holds = match expect {
        Expect::Any => true,
        Expect::Absent => current.is_none(),
        Expect::At(revision) => current.is_some_and(|current| current.revision == revision),
    };
    if holds {
        Ok(())
    } else {
        Err(WriteError::Conflict {
            current: current.cloned(),
        })
    }
}
