//! Records: one durable change each, and the reservation of revisions.

use bytes::Bytes;

use super::file::array;
use crate::{Entry, Key, Revision};

const PUT: u8 = 1;
const DELETE: u8 = 2;
const RESERVE: u8 = 3;
const END: u8 = 4;

/// One record of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The key has this value now.
    Put(Entry),
    /// The key is gone.
    Delete { key: Key, revision: Revision },
    /// Revisions up to this one may have been handed out without a record.
    Reserve { through: Revision },
    /// The end of a snapshot with so many entries.
    End { entries: u64 },
}

pub(crate) fn put_entry(payload: &mut Vec<u8>, entry: &Entry) {
    payload.push(PUT);
    payload.extend(entry.revision.0.to_le_bytes());
    payload.extend(entry.created.0.to_le_bytes());
    put_bytes(payload, entry.key.as_str().as_bytes());
    put_bytes(payload, &entry.value);
}

pub(crate) fn put_delete(payload: &mut Vec<u8>, key: &Key, revision: Revision) {
    payload.push(DELETE);
    payload.extend(revision.0.to_le_bytes());
    put_bytes(payload, key.as_str().as_bytes());
}

pub(crate) fn put_reserve(payload: &mut Vec<u8>, through: Revision) {
    payload.push(RESERVE);
    payload.extend(through.0.to_le_bytes());
}

pub(crate) fn put_end(payload: &mut Vec<u8>, entries: u64) {
    payload.push(END);
    payload.extend(entries.to_le_bytes());
}

fn put_bytes(payload: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("keys and values are limited to far below 4 GiB");
    payload.extend(len.to_le_bytes());
    payload.extend(bytes);
}

/// Takes the next record off a payload; `None` if the bytes make no sense.
pub(crate) fn take(payload: &mut &[u8]) -> Option<Record> {
    let (kind, rest) = payload.split_first()?;
    *payload = rest;
    match *kind {
        PUT => {
            let revision = Revision(take_u64(payload)?);
            let created = Revision(take_u64(payload)?);
            let key = take_key(payload)?;
            // Copied on purpose: a slice would keep the whole file in memory.
            let value = Bytes::copy_from_slice(take_bytes(payload)?);
            Some(Record::Put(Entry {
                key,
                value,
                revision,
                created,
            }))
        }
        DELETE => {
            let revision = Revision(take_u64(payload)?);
            Some(Record::Delete {
                key: take_key(payload)?,
                revision,
            })
        }
        RESERVE => Some(Record::Reserve {
            through: Revision(take_u64(payload)?),
        }),
        END => Some(Record::End {
            entries: take_u64(payload)?,
        }),
        _ => None,
    }
}

fn take_u64(payload: &mut &[u8]) -> Option<u64> {
    let (number, rest) = payload.split_at_checked(8)?;
    *payload = rest;
    Some(u64::from_le_bytes(array(number)))
}

fn take_bytes<'a>(payload: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = payload.split_at_checked(4)?;
    let len = usize::try_from(u32::from_le_bytes(array(len))).ok()?;
    let (bytes, rest) = rest.split_at_checked(len)?;
    *payload = rest;
    Some(bytes)
}

fn take_key(payload: &mut &[u8]) -> Option<Key> {
    std::str::from_utf8(take_bytes(payload)?)
        .ok()
        .map(Key::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let entry = Entry {
            key: Key::from("/registry/pods/default/web"),
            value: Bytes::from_static(b"{}"),
            revision: Revision(9),
            created: Revision(4),
        };
        let mut payload = Vec::new();
        put_entry(&mut payload, &entry);
        put_delete(&mut payload, &entry.key, Revision(10));
        put_reserve(&mut payload, Revision(70_000));
        put_end(&mut payload, 1);
        let mut rest = payload.as_slice();
        assert_eq!(take(&mut rest), Some(Record::Put(entry.clone())));
        let gone = Record::Delete {
            key: entry.key,
            revision: Revision(10),
        };
        assert_eq!(take(&mut rest), Some(gone));
        assert_eq!(
            take(&mut rest),
            Some(Record::Reserve {
                through: Revision(70_000)
            })
        );
        assert_eq!(take(&mut rest), Some(Record::End { entries: 1 }));
        assert_eq!(take(&mut rest), None);
    }
}
