//! What the shim and the node say to each other: one request, one reply, one connection.
//!
//! ```text
//! request   magic "SWC1" · seven fields, each: length (u32, little endian) · bytes
//!           command, container id, netns, interface, args, path, the conf from stdin
//! reply     magic "SWC1" · outcome (0 = result, 1 = error) · one field: the JSON for stdout
//! ```
//!
//! The shim passes bytes through and understands none of them; this module uses std alone.

use std::io::{self, Read, Write};

/// Four bytes that open both directions, so that a stranger on the socket is noticed.
const MAGIC: [u8; 4] = *b"SWC1";

/// Longest field, in bytes. A conf with its previous result is a few kilobytes.
pub const FIELD_BYTES_MAX: usize = 1024 * 1024;

/// Environment and stdin of one plugin run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShimRequest {
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// The plugin's conf, as it came on stdin.
    pub conf: Vec<u8>,
}

/// What the plugin prints, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShimReply {
    /// Printed; exit code 0. May be empty (DEL, CHECK).
    Result(Vec<u8>),
    /// A CNI error object; printed; exit code 1.
    Error(Vec<u8>),
}

impl ShimRequest {
    /// Sends the request as one write.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut bytes = MAGIC.to_vec();
        for text in self.texts() {
            push_field(&mut bytes, text.as_bytes());
        }
        push_field(&mut bytes, &self.conf);
        out.write_all(&bytes)
    }

    /// Receives a request.
    pub fn read_from(input: &mut impl Read) -> io::Result<Self> {
        read_magic(input)?;
        Ok(Self {
            command: read_text(input)?,
            container_id: read_text(input)?,
            netns: read_text(input)?,
            ifname: read_text(input)?,
            args: read_text(input)?,
            path: read_text(input)?,
            conf: read_field(input)?,
        })
    }

    fn texts(&self) -> [&str; 6] {
        [
            &self.command,
            &self.container_id,
            &self.netns,
            &self.ifname,
            &self.args,
            &self.path,
        ]
    }
}

impl ShimReply {
    /// Sends the reply as one write.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let (outcome, body) = match self {
            Self::Result(body) => (0, body),
            Self::Error(body) => (1, body),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.push(outcome);
        push_field(&mut bytes, body);
        out.write_all(&bytes)
    }

    /// Receives a reply.
    pub fn read_from(input: &mut impl Read) -> io::Result<Self> {
        read_magic(input)?;
        let mut outcome = [0];
        input.read_exact(&mut outcome)?;
        let body = read_field(input)?;
        match outcome {
            [0] => Ok(Self::Result(body)),
            [1] => Ok(Self::Error(body)),
            _ => Err(invalid("unknown outcome in a reply")),
        }
    }
}

fn push_field(bytes: &mut Vec<u8>, field: &[u8]) {
    // A longer field is cut off here and refused by the reader: both ends are ours.
    let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(field);
}

fn read_magic(input: &mut impl Read) -> io::Result<()> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic)?;
    if magic == MAGIC {
        Ok(())
    } else {
        Err(invalid("not a swiftlet-cni message"))
    }
}

fn read_text(input: &mut impl Read) -> io::Result<String> {
    String::from_utf8(read_field(input)?).map_err(|_| invalid("a field is not UTF-8"))
}

fn read_field(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > FIELD_BYTES_MAX {
        return Err(invalid("a field is longer than 1 MiB"));
    }
    let mut field = vec![0; length];
    input.read_exact(&mut field)?;
    Ok(field)
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was_sent() {
        let request = ShimRequest {
            command: "ADD".into(),
            container_id: "c1".into(),
            netns: "/run/netns/x".into(),
            ifname: "eth0".into(),
            conf: b"{\"name\":\"n\"}".to_vec(),
            ..ShimRequest::default()
        };
        let mut bytes = Vec::new();
        request.write_to(&mut bytes).unwrap();
        assert_eq!(
            ShimRequest::read_from(&mut bytes.as_slice()).unwrap(),
            request
        );
    }

    #[test]
    fn both_replies_arrive_as_they_were_sent() {
        for reply in [
            ShimReply::Result(Vec::new()),
            ShimReply::Error(b"{}".to_vec()),
        ] {
            let mut bytes = Vec::new();
            reply.write_to(&mut bytes).unwrap();
            assert_eq!(ShimReply::read_from(&mut bytes.as_slice()).unwrap(), reply);
        }
    }

    #[test]
    fn strangers_cut_messages_and_giants_are_refused() {
        let mut giant = MAGIC.to_vec();
        giant.extend_from_slice(&u32::MAX.to_le_bytes());
        for bytes in [b"GET / HTTP/1.1".as_slice(), b"SWC1\x05\0\0\0AD", &giant] {
            assert!(ShimRequest::read_from(&mut &*bytes).is_err());
        }
    }
}
