//! The plugin `loopback`: brings `lo` up inside the pod's namespace, and sees whether it is.
//!
//! The shim does this itself, with one `setns` and one 32-byte message: cheaper than a question to
//! the node, and right even where another plugin attaches `eth0`.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

/// `lo` is the first interface of every namespace (`LOOPBACK_IFINDEX`, include/net/flow.h).
const LOOPBACK_INDEX: i32 = 1;
const MESSAGE_BYTES: u32 = 32;
/// The front of an answer, which is all that is looked at.
const ANSWER_BYTES: usize = 128;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const IFF_UP: u32 = 1;
/// The IPv6 addresses of the reader's own namespace: address, four numbers, interface.
const IPV6_ADDRESSES: &str = "/proc/thread-self/net/if_inet6";
/// `::1` as the kernel writes it there.
const IPV6_LOOPBACK: &str = "00000000000000000000000000000001";

/// Brings `lo` up in the namespace at `netns` and says whether it has `::1`, which the kernel
/// gives it with IPv6. The calling process stays in that namespace, so this is for a process that
/// ends next.
pub(super) fn bring_up(netns: &str) -> io::Result<bool> {
    let answer = ask(netns, RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, IFF_UP)?;
    match error_code(&answer) {
        Some(0) => Ok(has_ipv6()),
        Some(code) => Err(Errno::from_raw(-code).into()),
        None => Err(unexpected()),
    }
}

/// Whether `lo` is up in the namespace at `netns`, where the calling process stays.
pub(super) fn is_up(netns: &str) -> io::Result<bool> {
    let answer = ask(netns, RTM_GETLINK, NLM_F_REQUEST, 0)?;
    if let Some(code) = error_code(&answer) {
        return Err(Errno::from_raw(-code).into());
    }
    let flags = answer.get(24..28).and_then(|bytes| bytes.try_into().ok());
    let flags = flags.map(u32::from_ne_bytes).ok_or_else(unexpected)?;
    Ok(flags & IFF_UP != 0)
}

fn ask(netns: &str, kind: u16, request: u16, flags: u32) -> io::Result<Vec<u8>> {
    setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let message = link_message(kind, request, flags);
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    // The kernel answers before `send` returns, so the answer is there or never comes.
    let mut answer = vec![0_u8; ANSWER_BYTES];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    answer.truncate(length);
    Ok(answer)
}

/// A netlink header and an interface header about `lo`; the flags are those that change.
fn link_message(kind: u16, request: u16, flags: u32) -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend_from_slice(&MESSAGE_BYTES.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(&request.to_ne_bytes());
    message.extend_from_slice(&[0; 8]); // sequence number, port
    message.extend_from_slice(&[0; 4]); // family, padding, type
    message.extend_from_slice(&LOOPBACK_INDEX.to_ne_bytes());
    message.extend_from_slice(&flags.to_ne_bytes()); // flags
    message.extend_from_slice(&flags.to_ne_bytes()); // which of them change
    message
}

/// The code of an NLMSG_ERROR answer: 0 is an acknowledgement, otherwise a negative errno.
fn error_code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code)
}

/// Without the file the kernel has no IPv6.
fn has_ipv6() -> bool {
    fs::read_to_string(IPV6_ADDRESSES).is_ok_and(|text| {
        let mut lines = text.lines();
        lines.any(|line| line.starts_with(IPV6_LOOPBACK) && line.ends_with(" lo"))
    })
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected netlink answer")
}
