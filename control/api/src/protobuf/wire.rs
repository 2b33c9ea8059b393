//! The wire format: numbered fields.

use super::ProtobufError;

/// The value of one field, as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'b> {
    /// A number of variable length.
    Number(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32(u32),
    /// A text, bytes or message.
    Bytes(&'b [u8]),
}

impl<'b> Wire<'b> {
    pub(super) fn number(self) -> Result<u64, ProtobufError> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(ProtobufError::Malformed),
        }
    }

    pub(super) fn fixed(self) -> Result<u64, ProtobufError> {
        match self {
            Self::Fixed64(bits) => Ok(bits),
            Self::Fixed32(bits) => Ok(bits.into()),
            _ => Err(ProtobufError::Malformed),
        }
    }

    pub(super) fn bytes(self) -> Result<&'b [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Malformed),
        }
    }

    pub(super) fn text(self) -> Result<String, ProtobufError> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| ProtobufError::Malformed)
    }
}

/// Reads the fields of a message, in the order in which they were written.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and value; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Wire<'b>)>, ProtobufError> {
        let Some(tag) = self.next_number()? else {
            return Ok(None);
        };
        let wire = match tag & 7 {
            0 => Wire::Number(self.next_number()?.ok_or(ProtobufError::Malformed)?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.next_number()?.ok_or(ProtobufError::Malformed)?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtobufError::Malformed),
        };
        Ok(Some((tag >> 3, wire)))
    }

    /// The next number of variable length; `None` at the end.
    pub(super) fn next_number(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.array::<1>()?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(number));
            }
        }
        Err(ProtobufError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(ProtobufError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        self.take(N)?
            .try_into()
            .map_err(|_| ProtobufError::Malformed)
    }
}
