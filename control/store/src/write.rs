//! What a writer asks for.

use bytes::{BufMut, Bytes, BytesMut};

use crate::{Key, Revision, WriteError};

/// Digits of the greatest revision (`u64::MAX`).
const REVISION_DIGITS_MAX: usize = 20;

/// An encoded object with the place where its own revision is written (the API's
/// `resourceVersion`): only the writer knows the revision, and it must not parse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The encoded object without the revision.
    pub bytes: Bytes,
    /// Offset in `bytes` at which the decimal revision is inserted; `None`: nowhere.
    pub slot: Option<usize>,
}

impl Template {
    /// A value that does not carry its revision.
    pub fn plain(bytes: impl Into<Bytes>) -> Self {
        Self {
            bytes: bytes.into(),
            slot: None,
        }
    }

    /// A value whose revision is inserted at `slot`.
    pub fn with_slot(bytes: impl Into<Bytes>, slot: usize) -> Self {
        Self {
            bytes: bytes.into(),
            slot: Some(slot),
        }
    }

    /// Refuses what could not be stored.
    pub(crate) fn check(&self, limit_bytes: usize) -> Result<(), WriteError> {
        let size_bytes = self.bytes.len();
        if size_bytes > limit_bytes {
            return Err(WriteError::TooLarge {
                size_bytes,
                limit_bytes,
            });
        }
        match self.slot {
            Some(slot) if slot > size_bytes => Err(WriteError::SlotOutOfRange { slot, size_bytes }),
            _ => Ok(()),
        }
    }

    /// The final bytes: one allocation with a slot, none without. [`Template::check`] was
    /// called before, so the slot lies inside.
    pub(crate) fn fill(&self, revision: Revision) -> Bytes {
        let Some(slot) = self.slot else {
            return self.bytes.clone();
        };
        let mut digits = [0_u8; REVISION_DIGITS_MAX];
        let mut start = digits.len();
        let mut rest = revision.0;
        loop {
            start -= 1;
            digits[start] = b'0' + u8::try_from(rest % 10).expect("a digit is below ten");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let digits = &digits[start..];
        let mut filled = BytesMut::with_capacity(self.bytes.len() + digits.len());
        filled.put_slice(&self.bytes[..slot]);
        filled.put_slice(digits);
        filled.put_slice(&self.bytes[slot..]);
        filled.freeze()
    }
}

/// The compare of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever is there (a deletion still needs something to delete).
    Any,
    /// The key does not exist.
    Absent,
    /// The key exists and was last changed at this revision.
    At(Revision),
}

/// Where a write must be before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// On disk.
    Journal,
    /// Visible in memory: gone after a restart (leases, which are renewed anyway). A key
    /// whose value is in the journal stays in the journal, whatever a later write says:
    /// otherwise a restart would bring an old value back.
    Memory,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates or replaces a value.
    Put {
        /// The key to write.
        key: Key,
        /// The value.
        value: Template,
        /// The condition.
        expect: Expect,
        /// Where the value must be before the answer.
        durability: Durability,
    },
    /// Removes a key. It is journalled if the key's value was.
    Delete {
        /// The key to remove. A key that does not exist is a conflict without a current entry.
        key: Key,
        /// The condition.
        expect: Expect,
        /// The object's last state as watches shall see it, with the deletion's revision;
        /// `None`: the stored value.
        last: Option<Template>,
    },
}

impl Op {
    /// The key that the operation is about.
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Delete { key, .. } => key,
        }
    }

    /// Bytes that the operation brings along, for the limit of a batch.
    pub(crate) fn size_bytes(&self) -> usize {
        let value = match self {
            Self::Put { value, .. } => value.bytes.len(),
            Self::Delete { last, .. } => last.as_ref().map_or(0, |last| last.bytes.len()),
        };
        self.key().as_str().len() + value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_revision_is_written_into_its_slot() {
        let template = Template::with_slot("{\"v\":\"\"}", 6);
        assert_eq!(template.fill(Revision(1207)), "{\"v\":\"1207\"}");
        assert_eq!(template.fill(Revision(0)), "{\"v\":\"0\"}");
        let greatest = format!("{{\"v\":\"{}\"}}", u64::MAX);
        assert_eq!(template.fill(Revision(u64::MAX)), greatest);
        assert_eq!(Template::plain("as it is").fill(Revision(7)), "as it is");
    }

    #[test]
    fn a_slot_may_be_at_either_end_but_not_beyond() {
        assert_eq!(Template::with_slot("ab", 0).fill(Revision(3)), "3ab");
        assert_eq!(Template::with_slot("ab", 2).fill(Revision(3)), "ab3");
        let beyond = Template::with_slot("ab", 3).check(10);
        assert!(matches!(
            beyond,
            Err(WriteError::SlotOutOfRange {
                slot: 3,
                size_bytes: 2
            })
        ));
    }
}
