//! Frames: a batch of records that counts as a whole or not at all.

use super::file::array;
use crate::Revision;

/// First bytes of a frame.
const MAGIC: [u8; 4] = *b"swf1";
/// Magic, payload length, last revision, checksum of the payload, checksum of the head.
pub(crate) const HEAD_BYTES: usize = 24;
/// Longest payload that is believed: a batch and one object over it stay far below.
const PAYLOAD_BYTES_MAX: u32 = 1 << 30;
/// The unit in which disks keep or lose what they were given.
const SECTOR_BYTES: usize = 512;

/// A frame that is being filled.
#[derive(Debug)]
pub(crate) struct Frame(Vec<u8>);

impl Frame {
    /// An empty frame in a buffer that was used before.
    pub(crate) fn in_buffer(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        Self(buffer)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == HEAD_BYTES
    }

    /// Bytes of the records so far.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.0.len() - HEAD_BYTES
    }

    /// Where records are appended.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.0
    }

    /// Writes the head; `last` is the last revision that this frame covers.
    pub(crate) fn seal(mut self, last: Revision, salt: u32) -> Vec<u8> {
        let (head, payload) = self.0.split_at_mut(HEAD_BYTES);
        let len = u32::try_from(payload.len()).expect("batches are limited to far below 4 GiB");
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&len.to_le_bytes());
        head[8..16].copy_from_slice(&last.0.to_le_bytes());
        head[16..20].copy_from_slice(&crc32c::crc32c_append(salt, payload).to_le_bytes());
        let sum = crc32c::crc32c_append(salt, &head[..20]);
        head[20..24].copy_from_slice(&sum.to_le_bytes());
        self.0
    }
}

/// What is found at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'a> {
    /// A whole frame.
    Frame {
        last: Revision,
        payload: &'a [u8],
        len: usize,
    },
    /// The end of the file, between two frames.
    End,
    /// The rest of the file is a frame whose writing a crash has cut short.
    Torn,
    /// Damage.
    Damaged(&'static str),
}

/// Looks at the frame that begins at the beginning of `rest`, at offset `offset` of its file.
pub(crate) fn find(rest: &[u8], offset: usize, salt: u32) -> Found<'_> {
    if rest.is_empty() {
        return Found::End;
    }
    let Some(head) = rest.first_chunk::<HEAD_BYTES>() else {
        return Found::Torn;
    };
    let Some(len) = checked_len(head, salt) else {
        return holes(
            rest,
            offset,
            salt,
            "a frame's head does not match its checksum",
        );
    };
    let Some(payload) = rest.get(HEAD_BYTES..HEAD_BYTES + len) else {
        return Found::Torn;
    };
    let sum = u32::from_le_bytes(array(&head[16..]));
    if sum != crc32c::crc32c_append(salt, payload) {
        return holes(
            rest,
            offset,
            salt,
            "a frame's records do not match their checksum",
        );
    }
    let last = Revision(u64::from_le_bytes(array(&head[8..])));
    Found::Frame {
        last,
        payload,
        len: HEAD_BYTES + len,
    }
}

/// The payload's length, if the head is sound.
fn checked_len(head: &[u8; HEAD_BYTES], salt: u32) -> Option<usize> {
    if head[..4] != MAGIC {
        return None;
    }
    let sum = u32::from_le_bytes(array(&head[20..]));
    let len = u32::from_le_bytes(array(&head[4..]));
    let sound = sum == crc32c::crc32c_append(salt, &head[..20]) && len <= PAYLOAD_BYTES_MAX;
    sound.then(|| usize::try_from(len).ok())?
}

/// A frame that is all there but does not check out was torn only if a sector of it never
/// reached the disk, which then reads as zeros, and if nothing was written after it.
fn holes<'a>(rest: &[u8], offset: usize, salt: u32, reason: &'static str) -> Found<'a> {
    let followed = rest
        .windows(HEAD_BYTES)
        .skip(1)
        .filter(|window| window.starts_with(&MAGIC))
        .any(|window| {
            window
                .first_chunk()
                .is_some_and(|head| checked_len(head, salt).is_some())
        });
    // The first sector may have begun with bytes of the frame before.
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(rest.len());
    let (begin, sectors) = rest.split_at(first);
    let zeros = |sector: &[u8]| sector.iter().all(|byte| *byte == 0);
    if !followed && (zeros(begin) || sectors.chunks(SECTOR_BYTES).any(zeros)) {
        Found::Torn
    } else {
        Found::Damaged(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8], last: u64) -> Vec<u8> {
        let mut frame = Frame::in_buffer(vec![1, 2, 3]);
        frame.payload().extend(payload);
        frame.seal(Revision(last), 99)
    }

    #[test]
    fn a_frame_cut_anywhere_is_torn() {
        let bytes = frame(b"some records", 7);
        assert_eq!(find(&bytes[..0], 36, 99), Found::End);
        for len in 1..bytes.len() {
            assert_eq!(find(&bytes[..len], 36, 99), Found::Torn, "{len} bytes");
        }
        let whole = Found::Frame {
            last: Revision(7),
            payload: b"some records",
            len: bytes.len(),
        };
        assert_eq!(find(&bytes, 36, 99), whole);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_damage() {
        let mut bytes = frame(b"some records", 7);
        bytes.extend(frame(b"more", 8));
        for at in 0..HEAD_BYTES + 12 {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                let found = find(&bytes, 36, 99);
                assert!(matches!(found, Found::Damaged(_)), "byte {at}: {found:?}");
            }
        }
    }

    #[test]
    fn sectors_that_never_reached_the_disk_are_torn_only_at_the_end() {
        let mut bytes = frame(&[b'x'; 4000], 7);
        bytes[1000..2200].fill(0);
        assert_eq!(find(&bytes, 36, 99), Found::Torn);
        bytes.extend(frame(b"acknowledged later", 8));
        assert!(matches!(find(&bytes, 36, 99), Found::Damaged(_)));
        assert_eq!(find(&[0; 4096], 36, 99), Found::Torn);
    }

    #[test]
    fn frames_of_another_file_are_not_believed() {
        let bytes = frame(b"some records", 7);
        assert!(matches!(find(&bytes, 36, 98), Found::Damaged(_)));
    }
}
