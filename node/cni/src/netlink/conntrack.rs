//! Connection tracking: what the kernel remembers of flows. Numbers and layouts:
//! include/uapi/linux/netfilter/nfnetlink_conntrack.h.

use nix::errno::Errno;

use super::nft::{Family, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, find, message, nested};
use super::socket::NetlinkSocket;
use crate::error::NetworkError;

const NFNL_SUBSYS_CTNETLINK: u16 = 1;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_DST_PORT: u16 = 3;
const IPPROTO_UDP: u8 = 17;
/// `struct nfgenmsg`.
const GENERIC_HEADER_BYTES: usize = 4;
/// Flows that are forgotten in one batch.
const BATCH_MAX: usize = 256;

/// Forgets a family's UDP flows to one of these ports, and says how many.
pub(crate) fn forget_udp(
    socket: &mut NetlinkSocket,
    family: Family,
    ports: &[u16],
) -> Result<usize, NetworkError> {
    let mut bytes = Vec::new();
    let kind = of_conntrack(IPCTNL_MSG_CT_GET);
    message(
        socket,
        &mut bytes,
        kind,
        NLM_F_REQUEST | NLM_F_DUMP,
        family.header(),
        &[],
    );
    let mut flows = Vec::new();
    socket.dump_raw("list flows", &bytes, |body| {
        let original = body
            .get(GENERIC_HEADER_BYTES..)
            .and_then(|body| find(body, CTA_TUPLE_ORIG));
        flows.extend(
            original
                .filter(|tuple| is_udp_to(tuple, ports))
                .map(<[u8]>::to_vec),
        );
    })?;
    for some in flows.chunks(BATCH_MAX) {
        forget(socket, family, some)?;
    }
    Ok(flows.len())
}

fn forget(
    socket: &mut NetlinkSocket,
    family: Family,
    flows: &[Vec<u8>],
) -> Result<(), NetworkError> {
    let step = "forget flows";
    let mut bytes = Vec::new();
    for original in flows {
        let (kind, flags) = (
            of_conntrack(IPCTNL_MSG_CT_DELETE),
            NLM_F_REQUEST | NLM_F_ACK,
        );
        let body = nested(CTA_TUPLE_ORIG, original);
        message(socket, &mut bytes, kind, flags, family.header(), &body);
    }
    let refusals = socket.exchange(&bytes, flows.len(), step)?;
    // Those that have ended meanwhile are forgotten.
    match refusals.iter().find(|(_, errno)| *errno != Errno::ENOENT) {
        None => Ok(()),
        Some((_, source)) => Err(NetworkError::Kernel {
            step,
            source: *source,
        }),
    }
}

fn is_udp_to(tuple: &[u8], ports: &[u16]) -> bool {
    let protocol = find(tuple, CTA_TUPLE_PROTO).unwrap_or_default();
    let port = find(protocol, CTA_PROTO_DST_PORT).and_then(|port| port.try_into().ok());
    let port = port.map(u16::from_be_bytes);
    find(protocol, CTA_PROTO_NUM) == Some(&[IPPROTO_UDP])
        && port.is_some_and(|port| ports.contains(&port))
}

fn of_conntrack(kind: u16) -> u16 {
    NFNL_SUBSYS_CTNETLINK << 8 | kind
}

#[cfg(test)]
mod tests {
    use super::super::nft::attribute;
    use super::*;

    fn tuple(protocol: u8, port: u16) -> Vec<u8> {
        let body = [
            attribute(CTA_PROTO_NUM, &[protocol]),
            attribute(CTA_PROTO_DST_PORT, &port.to_be_bytes()),
        ];
        nested(CTA_TUPLE_PROTO, &body.concat())
    }

    #[test]
    fn a_flow_is_known_by_protocol_and_port() {
        assert!(is_udp_to(&tuple(IPPROTO_UDP, 53), &[80, 53]));
        assert!(!is_udp_to(&tuple(6, 53), &[53]));
        assert!(!is_udp_to(&tuple(IPPROTO_UDP, 54), &[53]));
        assert!(!is_udp_to(&[1, 0], &[53]), "garbage is no flow");
    }
}
