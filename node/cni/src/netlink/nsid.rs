//! The numbers by which one namespace knows the others.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};

use super::socket::NetlinkSocket;
use crate::error::NetworkError;

/// `ip netns list-id`: the number of a namespace in the socket's own, which the links of it show
/// as that of their other end. `None` if it has none, so that no pair leads there.
pub(crate) fn of(
    socket: &mut NetlinkSocket,
    namespace: BorrowedFd<'_>,
) -> Result<Option<i32>, NetworkError> {
    let step = "look up a namespace's number";
    let fd = u32::try_from(namespace.as_raw_fd()).map_err(|_| NetworkError::Answer { step })?;
    let mut query = NsidMessage::default();
    query.attributes.push(NsidAttribute::Fd(fd));
    let Some(RouteNetlinkMessage::NewNsId(answer)) =
        socket.get(step, RouteNetlinkMessage::GetNsId(query))?
    else {
        return Err(NetworkError::Answer { step });
    };
    let id = |attribute: &NsidAttribute| match attribute {
        NsidAttribute::Id(id) => Some(*id),
        _ => None,
    };
    // Minus one: none has been given.
    Ok(answer.attributes.iter().find_map(id).filter(|id| *id >= 0))
}
