//! The wire format: numbered fields.

/// Why bytes are no message, or not that of a field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// A value is longer than what is there.
    #[error("unexpected end")]
    Truncated,
    /// A number goes on for more than 64 bits.
    #[error("a number is too long")]
    NumberTooLong,
    /// A field with a number or wire type that does not exist.
    #[error("illegal tag {0}")]
    IllegalTag(u64),
    /// A field has another wire type than its type has.
    #[error("wrong wire type")]
    WrongType,
    /// A text is not UTF-8.
    #[error("not a text in UTF-8")]
    NotUtf8,
    /// Bytes that are to be JSON are not.
    #[error("not JSON")]
    NotJson,
    /// A time is out of range.
    #[error("not a time")]
    NotATime,
}

/// The value of one field, as it stands on the wire.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'b> {
    /// A number of variable length.
    Number(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes; no field has this type.
    Fixed32,
    /// A text, bytes or message.
    Bytes(&'b [u8]),
}

impl<'b> Wire<'b> {
    pub(super) fn number(self) -> Result<u64, WireError> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(WireError::WrongType),
        }
    }

    pub(super) fn fixed64(self) -> Result<u64, WireError> {
        match self {
            Self::Fixed64(bits) => Ok(bits),
            _ => Err(WireError::WrongType),
        }
    }

    pub(super) fn bytes(self) -> Result<&'b [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::WrongType),
        }
    }

    pub(super) fn text(self) -> Result<&'b str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::NotUtf8)
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
    pub(super) fn next(&mut self) -> Result<Option<(u64, Wire<'b>)>, WireError> {
        let Some(tag) = self.next_number()? else {
            return Ok(None);
        };
        let number = tag >> 3;
        let wire = match tag & 7 {
            _ if number == 0 => return Err(WireError::IllegalTag(tag)),
            0 => Wire::Number(self.next_number()?.ok_or(WireError::Truncated)?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.next_number()?.ok_or(WireError::Truncated)?;
                let length = usize::try_from(length).map_err(|_| WireError::Truncated)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(size_of::<u32>())?;
                Wire::Fixed32
            }
            // Kubernetes has no groups (3 and 4); 6 and 7 do not exist.
            _ => return Err(WireError::IllegalTag(tag)),
        };
        Ok(Some((number, wire)))
    }

    /// The next number of variable length; `None` at the end.
    pub(super) fn next_number(&mut self) -> Result<Option<u64>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = u64::from(self.array::<1>()?[0]);
            number |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(Some(number));
            }
        }
        Err(WireError::NumberTooLong)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], WireError> {
        let split = self.rest.split_at_checked(length);
        let (taken, rest) = split.ok_or(WireError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take(N)?.try_into().map_err(|_| WireError::Truncated)
    }
}
