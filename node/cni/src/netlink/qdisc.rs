//! Traffic control: limits of links, and what comes in sent elsewhere. Numbers and layouts:
//! include/uapi/linux/pkt_sched.h, pkt_cls.h and tc_act/tc_mirred.h.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAction, TcActionAttribute, TcActionMirrorOption, TcActionOption, TcActionType, TcAttribute,
    TcFilterU32Option, TcHandle, TcMessage, TcMirror, TcMirrorActionType, TcOption, TcU32Key,
    TcU32Selector, TcU32SelectorFlags,
};

use super::socket::{NetlinkSocket, Request};

/// How long a packet may wait for its turn before it is dropped, as with the reference plugin
/// (plugins/meta/bandwidth/ifb_creator.go, `latencyInMillis`).
const LATENCY_MS: u64 = 25;
/// `ETH_P_ALL` of include/uapi/linux/if_ether.h.
const ETH_P_ALL: u16 = 3;

const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;

/// A token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) rate_bytes_per_s: u64,
    pub(crate) burst_bytes: u32,
}

/// `tc qdisc add dev <index> root handle 1: tbf rate <rate> burst <burst> latency 25ms`
pub(crate) fn limit(index: u32, bucket: Bucket) -> Request {
    let mut message = message(index, TcHandle::from(0x0001_0000), TcHandle::ROOT, "tbf");
    message
        .attributes
        .push(TcAttribute::Options(options(bucket)));
    create(
        "limit the pod's bandwidth (is sch_tbf available?)",
        RouteNetlinkMessage::NewQueueDiscipline(message),
    )
}

/// `tc qdisc add dev <index> handle ffff: ingress`
pub(crate) fn take_ingress(index: u32) -> Request {
    let message = message(index, INGRESS, TcHandle::INGRESS, "ingress");
    create(
        "look at the pod's packets (is sch_ingress available?)",
        RouteNetlinkMessage::NewQueueDiscipline(message),
    )
}

/// `tc filter add dev <index> parent ffff: protocol all prio 1 u32 match u32 0 0
/// action mirred egress redirect dev <to>`
///
/// u32 and not matchall: it is in every kernel that has filters at all.
pub(crate) fn redirect_ingress(index: u32, to: u32) -> Request {
    const PRIORITY: u32 = 1;
    let mut message = message(index, TcHandle::UNSPEC, INGRESS, "u32");
    message.header.info = PRIORITY << 16 | u32::from(ETH_P_ALL.to_be());
    let mut selector = TcU32Selector::default();
    selector.flags = TcU32SelectorFlags::Terminal;
    selector.nkeys = 1;
    selector.keys = vec![TcU32Key::default()];
    let mut redirect = TcMirror::default();
    redirect.generic.action = TcActionType::Stolen;
    redirect.eaction = TcMirrorActionType::EgressRedir;
    redirect.ifindex = to;
    let mut action = TcAction::default();
    action.attributes = vec![
        TcActionAttribute::Kind("mirred".to_owned()),
        TcActionAttribute::Options(vec![TcActionOption::Mirror(TcActionMirrorOption::Parms(
            redirect,
        ))]),
    ];
    message.attributes.push(TcAttribute::Options(vec![
        TcOption::U32(TcFilterU32Option::Selector(selector)),
        TcOption::U32(TcFilterU32Option::Action(vec![action])),
    ]));
    create(
        "redirect the pod's packets (are cls_u32 and act_mirred available?)",
        RouteNetlinkMessage::NewTrafficFilter(message),
    )
}

/// Whether the link's packets go through a token bucket.
pub(crate) fn is_limited(socket: &mut NetlinkSocket, index: u32) -> bool {
    let mut query = TcMessage::default();
    query.header.index = as_index(index);
    query.header.parent = TcHandle::ROOT;
    let query = RouteNetlinkMessage::GetQueueDiscipline(query);
    let tbf = TcAttribute::Kind("tbf".to_owned());
    // A link without one is told as an error too.
    match socket.get("look at the bandwidth limit", query) {
        Ok(Some(RouteNetlinkMessage::NewQueueDiscipline(found))) => found.attributes.contains(&tbf),
        _ => false,
    }
}

const INGRESS: TcHandle = TcHandle {
    major: 0xffff,
    minor: 0,
};

fn message(index: u32, handle: TcHandle, parent: TcHandle, kind: &str) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = as_index(index);
    message.header.handle = handle;
    message.header.parent = parent;
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

fn as_index(index: u32) -> i32 {
    index.cast_signed()
}

/// `struct tc_tbf_qopt` and what does not fit into it. The burst is given in bytes: the structure
/// has it as a time in 32 bits, which the bursts that containerd asks for overflow.
fn options(bucket: Bucket) -> Vec<TcOption> {
    /// `TC_LINKLAYER_ETHERNET`: the kernel then needs no table of rates.
    const ETHERNET: u8 = 1;
    let waiting = u128::from(bucket.rate_bytes_per_s) * u128::from(LATENCY_MS) / 1000;
    let queue_bytes = waiting + u128::from(bucket.burst_bytes);
    let queue_bytes = u32::try_from(queue_bytes).unwrap_or(u32::MAX);
    let rate = u32::try_from(bucket.rate_bytes_per_s).unwrap_or(u32::MAX);
    // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate; then that of the
    // peak rate, of which there is none; limit, buffer, mtu.
    let mut parameters = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
    parameters.extend(rate.to_ne_bytes());
    parameters.extend([0; 12]);
    parameters.extend(queue_bytes.to_ne_bytes());
    parameters.extend([0; 8]);
    let burst = bucket.burst_bytes.to_ne_bytes().to_vec();
    let mut options = vec![
        TcOption::Other(DefaultNla::new(TCA_TBF_PARMS, parameters)),
        TcOption::Other(DefaultNla::new(TCA_TBF_BURST, burst)),
    ];
    if rate == u32::MAX {
        let rate = bucket.rate_bytes_per_s.to_ne_bytes().to_vec();
        options.push(TcOption::Other(DefaultNla::new(TCA_TBF_RATE64, rate)));
    }
    options
}

fn create(step: &'static str, message: RouteNetlinkMessage) -> Request {
    Request {
        step,
        flags: NLM_F_CREATE | NLM_F_EXCL,
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(options: &[TcOption], wanted: u16) -> Option<Vec<u8>> {
        use netlink_packet_core::Nla;
        let found = options.iter().find(|option| option.kind() == wanted)?;
        let mut bytes = vec![0; found.value_len()];
        found.emit_value(&mut bytes);
        Some(bytes)
    }

    #[test]
    fn a_bucket_is_written_as_the_kernel_reads_it() {
        let bucket = Bucket {
            rate_bytes_per_s: 125_000,
            burst_bytes: 64_000,
        };
        let options = options(bucket);
        let parameters = value(&options, TCA_TBF_PARMS).unwrap();
        assert_eq!(parameters.len(), 36, "struct tc_tbf_qopt");
        assert_eq!(parameters[8..12], 125_000_u32.to_ne_bytes());
        // 25 ms at that rate, and the burst.
        assert_eq!(parameters[24..28], (3_125_u32 + 64_000).to_ne_bytes());
        assert_eq!(
            value(&options, TCA_TBF_BURST).unwrap(),
            64_000_u32.to_ne_bytes()
        );
        assert_eq!(value(&options, TCA_TBF_RATE64), None);
    }

    #[test]
    fn rates_and_queues_beyond_32_bits_are_not_cut() {
        let bucket = Bucket {
            rate_bytes_per_s: 12_500_000_000,
            burst_bytes: u32::MAX,
        };
        let options = options(bucket);
        let parameters = value(&options, TCA_TBF_PARMS).unwrap();
        assert_eq!(parameters[8..12], [0xff; 4]);
        assert_eq!(parameters[24..28], [0xff; 4]);
        let rate = value(&options, TCA_TBF_RATE64).unwrap();
        assert_eq!(rate, 12_500_000_000_u64.to_ne_bytes());
    }
}
