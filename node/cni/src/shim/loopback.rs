//! The plugin `loopback`: brings `lo` up inside the pod's namespace.
//!
//! The shim does this itself, with one `setns` and one 32-byte message: cheaper than a question to
//! the node, and right even where another plugin attaches `eth0`.

use std::fs::File;
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
const RTM_NEWLINK: u16 = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST_ACK: u16 = 1 | 4;
const IFF_UP: u32 = 1;

/// Brings `lo` up in the namespace at `netns`. The calling process stays in that namespace, so
/// this is for a process that ends next.
pub(super) fn bring_up(netns: &str) -> io::Result<()> {
    setns(File::open(netns)?, CloneFlags::CLONE_NEWNET)?;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    send(
        socket.as_raw_fd(),
        &set_link_up(LOOPBACK_INDEX),
        MsgFlags::empty(),
    )?;
    // The kernel answers before `send` returns, so the answer is there or never comes.
    let mut answer = [0_u8; 128];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
    match error_code(&answer[..length]) {
        Some(0) => Ok(()),
        Some(code) => Err(Errno::from_raw(-code).into()),
        None => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "unexpected netlink answer",
        )),
    }
}

/// `ip link set dev <index> up`: a netlink header and an interface header.
fn set_link_up(index: i32) -> Vec<u8> {
    let mut message = Vec::with_capacity(32);
    message.extend_from_slice(&MESSAGE_BYTES.to_ne_bytes());
    message.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST_ACK.to_ne_bytes());
    message.extend_from_slice(&[0; 8]); // sequence number, port
    message.extend_from_slice(&[0; 4]); // family, padding, type
    message.extend_from_slice(&index.to_ne_bytes());
    message.extend_from_slice(&IFF_UP.to_ne_bytes()); // flags
    message.extend_from_slice(&IFF_UP.to_ne_bytes()); // which of them change
    message
}

/// The code of an NLMSG_ERROR answer: 0 is an acknowledgement, otherwise a negative errno.
fn error_code(answer: &[u8]) -> Option<i32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let code = i32::from_ne_bytes(answer.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(code)
}
