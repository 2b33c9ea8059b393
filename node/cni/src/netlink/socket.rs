//! A netlink socket, and batches of requests through it.
//!
//! An answer belongs to the request of its number. What an error left unread is thrown away before
//! the next request, or that one would take it for its own.

use std::os::fd::{AsRawFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_ECHO, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use nix::errno::Errno;
use nix::sys::socket::sockopt::{SndBuf, SndBufForce};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, setsockopt, socket,
};

use crate::error::NetworkError;
use crate::failpoint;

/// One datagram of answers: the kernel fills at most 32 KiB (`NLMSG_GOODSIZE` and dumps).
const RECEIVE_BYTES: usize = 32 * 1024;
/// `struct nlmsghdr` (include/uapi/linux/netlink.h).
const HEADER_BYTES: usize = 16;
/// What the kernel wants of the send buffer beside the message (`netlink_sendmsg`,
/// net/netlink/af_netlink.c).
const SEND_OVERHEAD_BYTES: usize = 32;
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
    /// A request was sent, and its answers have not all been read.
    unsettled: bool,
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
            unsettled: false,
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
        let asked = self.sequence;
        // A queueing discipline is shown to those who listen, and with the flag to who asks.
        self.append(&mut bytes, NLM_F_REQUEST | NLM_F_ECHO, message);
        self.send(&bytes, step)?;
        let is_answer = |reply: &Reply<'_>| reply.sequence == asked;
        let length = loop {
            let length = self.receive(step)?;
            if replies(&self.received[..length]).any(|reply| is_answer(&reply)) {
                break length;
            }
        };
        self.unsettled = false;
        let reply = replies(&self.received[..length])
            .find(is_answer)
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
        let mut found = Vec::new();
        self.dump_each(step, &bytes, |reply| found.extend(parse(reply.whole)))?;
        Ok(found)
    }

    /// Asks for all objects of a kind by a message that was built elsewhere; `each` gets what
    /// follows the header of each answer.
    pub(crate) fn dump_raw(
        &mut self,
        step: &'static str,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), NetworkError> {
        self.dump_each(step, bytes, |reply| each(reply.body))
    }

    fn dump_each(
        &mut self,
        step: &'static str,
        bytes: &[u8],
        mut each: impl FnMut(Reply<'_>),
    ) -> Result<(), NetworkError> {
        let asked = first_sequence(bytes);
        self.send(bytes, step)?;
        loop {
            let length = self.receive(step)?;
            for reply in replies(&self.received[..length]) {
                match (reply.kind, refusal(&reply)) {
                    _ if reply.sequence != asked => {}
                    (NLMSG_DONE, _) => {
                        self.unsettled = false;
                        return Ok(());
                    }
                    (NLMSG_ERROR, Some(source)) => {
                        self.unsettled = false;
                        return Err(NetworkError::Kernel { step, source });
                    }
                    _ => each(reply),
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
        let first = first_sequence(bytes);
        self.send(bytes, step)?;
        let mut refusals = Vec::new();
        let mut missing = acks;
        while missing > 0 {
            let length = self.receive(step)?;
            for reply in replies(&self.received[..length]) {
                let index = usize::try_from(reply.sequence.wrapping_sub(first));
                if reply.kind == NLMSG_ERROR && index.is_ok_and(|index| index < acks) {
                    missing = missing.saturating_sub(1);
                    refusals.extend(refusal(&reply).map(|errno| (reply.sequence, errno)));
                }
            }
        }
        self.unsettled = false;
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
        let (mut done, mut overflown) = (false, false);
        while !done {
            let length = match self.receive(step) {
                // More was refused than there is room for. What fitted in is still to be read.
                Err(NetworkError::Kernel {
                    source: Errno::ENOBUFS,
                    ..
                }) if !overflown => {
                    overflown = true;
                    continue;
                }
                Err(_) if overflown && !refusals.is_empty() => break,
                other => other?,
            };
            for reply in replies(&self.received[..length]) {
                let ours = reply.sequence.wrapping_sub(first) <= last.wrapping_sub(first);
                if reply.kind == NLMSG_ERROR && ours {
                    refusals.extend(refusal(&reply).map(|errno| (reply.sequence, errno)));
                    // A transaction that fails as a whole is refused by its first message.
                    done |= reply.sequence == last || reply.sequence == first;
                }
            }
        }
        self.unsettled = false;
        Ok(refusals)
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

    fn send(&mut self, bytes: &[u8], step: &'static str) -> Result<(), NetworkError> {
        if self.unsettled {
            self.throw_away_answers();
        }
        self.unsettled = true;
        failpoint::pass("before", &step);
        let mut sent = send(self.fd.as_raw_fd(), bytes, MsgFlags::empty());
        if sent == Err(Errno::EMSGSIZE) {
            // A transaction cannot be divided: it is to be in force as a whole.
            sent = self
                .make_room(bytes.len() + SEND_OVERHEAD_BYTES)
                .and_then(|()| send(self.fd.as_raw_fd(), bytes, MsgFlags::empty()));
        }
        failpoint::pass("after", &step);
        sent.map(drop)
            .map_err(|source| NetworkError::Kernel { step, source })
    }

    /// Beyond the machine's limit for everyone (`net.core.wmem_max`), if we may.
    fn make_room(&self, bytes: usize) -> Result<(), Errno> {
        setsockopt(&self.fd, SndBufForce, &bytes).or_else(|_| setsockopt(&self.fd, SndBuf, &bytes))
    }

    fn throw_away_answers(&mut self) {
        let mut next = || {
            recv(
                self.fd.as_raw_fd(),
                &mut self.received,
                MsgFlags::MSG_DONTWAIT,
            )
        };
        // ENOBUFS says, once, that some were lost.
        while matches!(next(), Ok(_) | Err(Errno::ENOBUFS)) {}
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

/// The number of the first request.
fn first_sequence(bytes: &[u8]) -> u32 {
    read_u32(bytes, 8).unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    /// `lo`, in every namespace.
    const LOOPBACK: u32 = 1;

    fn link(index: u32) -> RouteNetlinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = index;
        RouteNetlinkMessage::GetLink(link)
    }

    /// What an error leaves: a request whose answer nobody has read.
    fn ask_without_reading(socket: &mut NetlinkSocket, flags: u16, index: u32) {
        let mut bytes = Vec::new();
        socket.append(&mut bytes, NLM_F_REQUEST | flags, link(index));
        socket.send(&bytes, "ask").unwrap();
    }

    #[test]
    fn an_answer_that_nobody_read_is_not_taken_for_that_of_the_next_request() {
        // There is no such link.
        let stale = [(0, u32::MAX >> 1), (NLM_F_DUMP, 0)];
        for settled in [false, true] {
            for (flags, index) in stale {
                let mut socket = NetlinkSocket::route().unwrap();
                ask_without_reading(&mut socket, flags, index);
                // By its number alone, too.
                socket.unsettled &= !settled;
                if flags == 0 {
                    let found = socket.get("find lo", link(LOOPBACK)).unwrap();
                    assert!(
                        found.is_some(),
                        "the answer of before says that there is none"
                    );
                    ask_without_reading(&mut socket, flags, index);
                    socket.unsettled &= !settled;
                    assert!(!socket.dump("list links", link(0)).unwrap().is_empty());
                }
                socket.throw_away_answers();
                assert!(socket.get("find lo", link(LOOPBACK)).unwrap().is_some());
            }
        }
    }

    #[test]
    fn a_transaction_may_be_larger_than_the_send_buffer() {
        const COUNT: usize = 200;
        let mut socket = NetlinkSocket::route().unwrap();
        setsockopt(&socket.fd, SndBuf, &1).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..COUNT {
            socket.append(&mut bytes, NLM_F_REQUEST | NLM_F_ACK, link(u32::MAX >> 1));
        }
        let refused = socket.exchange(&bytes, COUNT, "ask often").unwrap();
        assert_eq!(refused.len(), COUNT);
    }
}
