//! Attributes: `struct nlattr`, its value, and padding to four bytes.

const NLA_F_NESTED: u16 = 0x8000;

pub(super) fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

pub(super) fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), &[0]].concat())
}

/// Data of a register or of an element.
pub(super) fn data(kind: u16, value: &[u8]) -> Vec<u8> {
    const NFTA_DATA_VALUE: u16 = 1;
    nested(kind, &attribute(NFTA_DATA_VALUE, value))
}

/// An attribute of attributes.
pub(crate) fn nested(kind: u16, body: &[u8]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, body)
}

/// The value of the first attribute of that kind.
pub(crate) fn find(attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    values(attributes, wanted).next()
}

/// The values of all attributes of that kind.
pub(super) fn values(mut attributes: &[u8], wanted: u16) -> impl Iterator<Item = &[u8]> {
    /// The two highest bits are flags (`NLA_TYPE_MASK`).
    const KIND_MASK: u16 = 0x3fff;
    let all = std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..length)?;
        attributes = attributes
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((kind & KIND_MASK, value))
    });
    all.filter_map(move |(kind, value)| (kind == wanted).then_some(value))
}

/// One attribute.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const HEADER_BYTES: usize = 4;
    let length = HEADER_BYTES + value.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}
