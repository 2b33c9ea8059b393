//! A netlink socket, and batches of requests through it.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_ECHO, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use crate::error::NetworkError;
use crate::failpoint;

/// One datagram of answers: the kernel fills at most 32 KiB (`NLMSG_GOODSIZE` and dumps).
const RECEIVE_BYTES: usize = 32 * 1024;
/// `struct nlmsghdr` (include/uapi/linux/netlink.h).
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// One request of a batch, with its name for the error message.
pub(crate) struct Request {
    pub(crate) step: &'static str,
    pub(crate) flags: u16,
    pub(crate) message: RouteNetlinkMessage,
}

/// A netlink socket of one protocol, bound for good to the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    fd: OwnedFd,
    sequence: u32,
    received: Vec<u8>,
}

/// An answer's header and what follows it.
struct Reply<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
    whole: &'a [u8],
}

impl NetlinkSocket {
    /// Opens a socket for links, addresses and routes in the calling thread's namespace.
    pub(crate) fn route() -> Result<Self, NetworkError> {
        Self::open(SockProtocol::NetlinkRoute, "open a route netlink socket")
    }

    /// Opens a socket for nftables in the calling thread's namespace.
    pub(crate) fn netfilter() -> Result<Self, NetworkError> {
        Self::open(
            SockProtocol::NetlinkNetFilter,
            "open a netfilter netlink socket",
        )
    }

    fn open(protocol: SockProtocol, step: &'static str) -> Result<Self, NetworkError> {
        let fd = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            protocol,
        )
        .map_err(|source| NetworkError::Kernel { step, source })?;
        Ok(Self {
            fd,
            sequence: 1,
            received: vec![0; RECEIVE_BYTES],
        })
    }

    /// Sends all requests at once; the first one that was refused is the error.
    ///
    /// The kernel goes on after a refused request, so the caller undoes the batch as a whole.
    pub(crate) fn batch(&mut self, requests: Vec<Request>) -> Result<(), NetworkError> {
        let first = self.sequence;
        let mut bytes = Vec::new();
        let mut steps = Vec::with_capacity(requests.len());
        for request in requests {
            steps.push(request.step);
            let flags = NLM_F_REQUEST | NLM_F_ACK | request.flags;
            self.append(&mut bytes, flags, request.message);
        }
        let refusals = self.exchange(&bytes, steps.len(), steps.first().unwrap_or(&"nothing"))?;
        match refusals.into_iter().min_by_key(|(sequence, _)| *sequence) {
            None => Ok(()),
            Some((sequence, source)) => {
                let index = usize::try_from(sequence.wrapping_sub(first)).unwrap_or(usize::MAX);
                Err(NetworkError::Kernel {
                    step: steps.get(index).unwrap_or(&"?"),
                    source,
                })
            }
        }
    }

    /// Asks for one object. `None` if it does not exist.
    pub(crate) fn get(
        &mut self,
        step: &'static str,
        message: RouteNetlinkMessage,
    ) -> Result<Option<RouteNetlinkMessage>, NetworkError> {
        let mut bytes = Vec::new();
        // A queueing discipline is shown to those who listen, and with the flag to who asks.
        self.append(&mut bytes, NLM_F_REQUEST | NLM_F_ECHO, message);
        self.send(&bytes, step)?;
        let length = self.receive(step)?;
        let reply = replies(&self.received[..length])
            .next()
            .ok_or(NetworkError::Answer { step })?;
        if reply.kind == NLMSG_ERROR {
            return match refusal(&reply) {
                Some(Errno::ENODEV) => Ok(None),
                Some(source) => Err(NetworkError::Kernel { step, source }),
                None => Err(NetworkError::Answer { step }),
            };
        }
        parse(reply.whole)
            .map(Some)
            .ok_or(NetworkError::Answer { step })
    }

    /// Asks for all objects of a kind.
    pub(crate) fn dump(
        &mut self,
        step: &'static str,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, NetworkError> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, NLM_F_REQUEST | NLM_F_DUMP, message);
        self.send(&bytes, step)?;
        let mut found = Vec::new();
        loop {
            let length = self.receive(step)?;
            for reply in replies(&self.received[..length]) {
                match (reply.kind, refusal(&reply)) {
                    (NLMSG_DONE, _) => return Ok(found),
                    (NLMSG_ERROR, Some(source)) => {
                        return Err(NetworkError::Kernel { step, source });
                    }
                    _ => found.extend(parse(reply.whole)),
                }
            }
        }
    }

    /// Asks for all objects of a kind by a message that was built elsewhere; `each` gets what
    /// follows the header of each answer.
    pub(crate) fn dump_raw(
        &mut self,
        step: &'static str,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), NetworkError> {
        self.send(bytes, step)?;
        loop {
            let length = self.receive(step)?;
            for reply in replies(&self.received[..length]) {
                match (reply.kind, refusal(&reply)) {
                    (NLMSG_DONE, _) => return Ok(()),
                    (NLMSG_ERROR, Some(source)) => {
                        return Err(NetworkError::Kernel { step, source });
                    }
                    _ => each(reply.body),
                }
            }
        }
    }

    /// Sends messages that ask for `acks` acknowledgements and returns those that were refused,
    /// by sequence number.
    pub(crate) fn exchange(
        &mut self,
        bytes: &[u8],
        acks: usize,
        step: &'static str,
    ) -> Result<Vec<(u32, Errno)>, NetworkError> {
        self.send(bytes, step)?;
        let mut refusals = Vec::new();
        let mut missing = acks;
        while missing > 0 {
            let length = self.receive(step)?;
            for reply in replies(&self.received[..length]) {
                if reply.kind == NLMSG_ERROR {
                    missing = missing.saturating_sub(1);
                    refusals.extend(refusal(&reply).map(|errno| (reply.sequence, errno)));
                }
            }
        }
        Ok(refusals)
    }

    /// Sends a transaction, whose last message alone asks for an acknowledgement: a socket has room
    /// for some 250 of them. Returns what was refused, by sequence number.
    pub(crate) fn exchange_transaction(
        &mut self,
        bytes: &[u8],
        first: u32,
        last: u32,
        step: &'static str,
    ) -> Result<Vec<(u32, Errno)>, NetworkError> {
        self.send(bytes, step)?;
        let mut refusals = Vec::new();
        loop {
            let length = self.receive(step)?;
            let mut done = false;
            for reply in replies(&self.received[..length]) {
                if reply.kind == NLMSG_ERROR {
                    refusals.extend(refusal(&reply).map(|errno| (reply.sequence, errno)));
                    // A transaction that fails as a whole is refused by its first message.
                    done |= reply.sequence == last || reply.sequence == first;
                }
            }
            if done {
                return Ok(refusals);
            }
        }
    }

    /// The next sequence number, for messages that are built elsewhere.
    pub(crate) fn next_sequence(&mut self) -> u32 {
        let sequence = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        sequence
    }

    fn append(&mut self, bytes: &mut Vec<u8>, flags: u16, message: RouteNetlinkMessage) {
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.next_sequence();
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let start = bytes.len();
        bytes.resize(start + aligned(packet.buffer_len()), 0);
        packet.serialize(&mut bytes[start..]);
    }

    fn send(&self, bytes: &[u8], step: &'static str) -> Result<(), NetworkError> {
        failpoint::pass("before", &step);
        let sent = send(self.fd.as_raw_fd(), bytes, MsgFlags::empty());
        failpoint::pass("after", &step);
        sent.map(drop)
            .map_err(|source| NetworkError::Kernel { step, source })
    }

    /// The next datagram. It is there already: EAGAIN means that the answer was lost.
    fn receive(&mut self, step: &'static str) -> Result<usize, NetworkError> {
        recv(
            self.fd.as_raw_fd(),
            &mut self.received,
            MsgFlags::MSG_DONTWAIT,
        )
        .map_err(|source| NetworkError::Kernel { step, source })
    }
}

fn replies(mut datagram: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(read_u32(datagram, 0)?).ok()?;
        let whole = datagram.get(..length)?;
        let reply = Reply {
            kind: u16::from_ne_bytes(whole.get(4..6)?.try_into().ok()?),
            sequence: read_u32(whole, 8)?,
            body: whole.get(HEADER_BYTES..)?,
            whole,
        };
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
        Some(reply)
    })
}

/// The errno in an NLMSG_ERROR; `None` for an acknowledgement.
fn refusal(reply: &Reply<'_>) -> Option<Errno> {
    let code = i32::from_ne_bytes(reply.body.get(..4)?.try_into().ok()?);
    (reply.kind == NLMSG_ERROR && code != 0).then(|| Errno::from_raw(code.wrapping_neg()))
}

fn parse(whole: &[u8]) -> Option<RouteNetlinkMessage> {
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(whole)
        .ok()?
        .payload
    {
        NetlinkPayload::InnerMessage(message) => Some(message),
        _ => None,
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Netlink messages begin at multiples of four bytes.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}
