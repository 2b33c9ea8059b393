//! Addresses that somebody asked for: which range set is to give which. Pure.
//!
//! The rules are host-local's (plugins/ipam/host-local/main.go): each set gives at most one of
//! them, all of them must be given, and a gateway never is.

use std::net::IpAddr;

use super::range_set::RangeSet;

/// The bridge that can give what is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) shard: usize,
    /// Per range set: the address, or whichever comes next.
    pub(super) ips: Vec<Option<IpAddr>>,
}

/// Why an address cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestedError {
    /// No range has them, or a set would have to give two.
    #[error("failed to allocate all requested IPs: {}", joined(.0))]
    Outside(Vec<IpAddr>),
    /// It is the node's.
    #[error("failed to allocate for range {set}: requested ip {ip} is subnet's gateway")]
    Gateway {
        /// Number of the range set.
        set: usize,
        /// The address.
        ip: IpAddr,
    },
    /// It is somebody else's.
    #[error(
        "failed to allocate for range {set}: requested IP address {ip} is not available in range \
         set {ranges}"
    )]
    Taken {
        /// Number of the range set.
        set: usize,
        /// The address.
        ip: IpAddr,
        /// The ranges of the set.
        ranges: String,
    },
}

/// Decides from which bridge, and from which of its sets, the addresses come.
pub(super) fn assign(
    asked: &[IpAddr],
    shards: &[Vec<&RangeSet>],
) -> Result<Assignment, RequestedError> {
    let mut least: Option<Vec<IpAddr>> = None;
    for (shard, sets) in shards.iter().enumerate() {
        let mut left = asked.to_vec();
        left.sort_unstable();
        left.dedup();
        let mut ips = Vec::new();
        for (set, ranges) in sets.iter().enumerate() {
            let inside = |ip: &IpAddr| ranges.range_of(*ip).is_some();
            let ip = left.iter().position(inside).map(|at| left.remove(at));
            let is_gateway = |ip: &IpAddr| ranges.ranges().iter().any(|one| one.gateway == *ip);
            if let Some(ip) = ip.filter(is_gateway) {
                return Err(RequestedError::Gateway { set, ip });
            }
            ips.push(ip);
        }
        if left.is_empty() {
            return Ok(Assignment { shard, ips });
        }
        if least.as_ref().is_none_or(|least| left.len() < least.len()) {
            least = Some(left);
        }
    }
    Err(RequestedError::Outside(least.unwrap_or_default()))
}

fn joined(ips: &[IpAddr]) -> String {
    let texts: Vec<_> = ips.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::range::Range;

    fn set(subnet: &str) -> RangeSet {
        let range = Range::new(subnet.parse().unwrap(), None, None, None).unwrap();
        RangeSet::new(vec![range]).unwrap()
    }

    fn decide(asked: &[&str]) -> Result<(usize, Vec<Option<String>>), String> {
        let (four, six, other) = (set("10.88.0.0/24"), set("fd00::/64"), set("10.88.1.0/24"));
        let asked: Vec<IpAddr> = asked.iter().map(|text| text.parse().unwrap()).collect();
        match assign(&asked, &[vec![&four, &six], vec![&other]]) {
            Ok(found) => Ok((
                found.shard,
                found
                    .ips
                    .iter()
                    .map(|ip| ip.map(|ip| ip.to_string()))
                    .collect(),
            )),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn each_set_gives_the_address_that_it_has() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            decide(&["10.88.0.9"]),
            Ok((0, vec![text("10.88.0.9"), None]))
        );
        let both = vec![text("10.88.0.9"), text("fd00::9")];
        assert_eq!(
            decide(&["fd00::9", "10.88.0.9", "10.88.0.9"]),
            Ok((0, both))
        );
        assert_eq!(decide(&["10.88.1.9"]), Ok((1, vec![text("10.88.1.9")])));
    }

    #[test]
    fn what_no_set_can_give_is_named() {
        let outside = "failed to allocate all requested IPs: 10.99.0.1";
        assert_eq!(decide(&["10.99.0.1"]), Err(outside.into()));
        let two = "failed to allocate all requested IPs: 10.88.0.81";
        assert_eq!(decide(&["10.88.0.80", "10.88.0.81"]), Err(two.into()));
        let gateway = "failed to allocate for range 0: requested ip 10.88.0.1 is subnet's gateway";
        assert_eq!(decide(&["10.88.0.1"]), Err(gateway.into()));
    }
}
