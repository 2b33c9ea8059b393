//! Bandwidth of pods, as the reference plugin limits it (plugins/meta/bandwidth): a token bucket on
//! the host's end of the pod's pair for what goes to the pod, and for what comes from it a token
//! bucket on a device `ifb`, to which the host's end sends all that it receives.
//!
//! The device, and not a policer on the host's end: a policer drops what is over the rate, a bucket
//! lets it wait, which TCP likes far better; and `act_police` is missing in more kernels than is
//! `ifb`.

use nix::net::if_::if_nametoindex;
use ring::digest;

use crate::bridge;
use crate::error::NetworkError;
use crate::mac::Mac;
use crate::netlink::link::{self, Link};
use crate::netlink::qdisc::{self, Bucket};
use crate::netlink::socket::NetlinkSocket;

/// What the reference's names of devices begin with, and how long they are (ifb_creator.go and
/// main.go). The names are the same, so that either program can take down what the other made.
const IFB_PREFIX: &str = "bwp";
const IFB_NAME_BYTES: usize = 15;

/// The limits of one pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bandwidth {
    /// To the pod.
    pub(crate) ingress: Option<Bucket>,
    /// From the pod.
    pub(crate) egress: Option<Bucket>,
}

/// A limit as it is written: in bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// The name of the direction in its fields.
    pub(crate) direction: &'static str,
    pub(crate) rate_bits_per_s: u64,
    pub(crate) burst_bits: u64,
}

impl Limit {
    /// The bucket, or none if nothing is limited. An error says which field is wrong, and how.
    pub(crate) fn bucket(self) -> Result<Option<Bucket>, NetworkError> {
        let Self {
            direction,
            rate_bits_per_s,
            burst_bits,
        } = self;
        let wrong = |part: &str, reason: &str| {
            Err(NetworkError::Conf {
                field: format!("bandwidth.{direction}{part}"),
                reason: reason.to_owned(),
            })
        };
        let (rate_bytes_per_s, burst_bytes) = (rate_bits_per_s / 8, burst_bits / 8);
        match (rate_bits_per_s, burst_bits, u32::try_from(burst_bytes)) {
            (0, 0, _) => Ok(None),
            (0, ..) => wrong("Rate", "must be set with a burst"),
            (_, 0, _) => wrong("Burst", "must be set with a rate"),
            // The reference's limit, and that of the kernel.
            (_, _, Err(_) | Ok(u32::MAX)) => wrong("Burst", "must be less than 4 GiB"),
            _ if rate_bytes_per_s == 0 => wrong("Rate", "must be a byte per second or more"),
            (_, _, Ok(0)) => wrong("Burst", "must be a byte or more"),
            (_, _, Ok(burst_bytes)) => Ok(Some(Bucket {
                rate_bytes_per_s,
                burst_bytes,
            })),
        }
    }
}

/// The name of a pod's device: the digest of network and container, as much as fits.
pub(crate) fn ifb_name(network: &str, container_id: &str) -> String {
    let text = format!("{network}{container_id}");
    let digest = digest::digest(&digest::SHA512, text.as_bytes());
    let digits = digest
        .as_ref()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    IFB_PREFIX
        .chars()
        .chain(digits)
        .take(IFB_NAME_BYTES)
        .collect()
}

/// Limits the pod whose pair's host end is `host_end`. Says the hardware address of the device, if
/// there is one. What was done when a step fails goes with [`unlimit`] and the pair.
pub(crate) fn limit(
    socket: &mut NetlinkSocket,
    limits: Bandwidth,
    host_end: &str,
    ifb: &str,
    alias: &str,
) -> Result<Option<Mac>, NetworkError> {
    let port = existing(socket, host_end)?;
    let mut batch: Vec<_> = limits
        .ingress
        .map(|bucket| qdisc::limit(port.index, bucket))
        .into_iter()
        .collect();
    let Some(egress) = limits.egress else {
        socket.batch(batch)?;
        return Ok(None);
    };
    // Of an earlier attempt for the same pod, whose DEL never came.
    unlimit(socket, ifb)?;
    batch.push(link::create_ifb(ifb, port.mtu));
    batch.push(link::set_alias(ifb, alias));
    batch.push(qdisc::take_ingress(port.index));
    socket.batch(batch)?;
    let device = existing(socket, ifb)?;
    socket.batch(vec![
        qdisc::limit(device.index, egress),
        qdisc::redirect_ingress(port.index, device.index),
    ])?;
    Ok(device.mac)
}

/// Deletes the pod's device, if there is one; the rest goes with the pair.
///
/// The look-up is the ioctl by name, which does not wait for the kernel's lock of links: every DEL
/// asks, and few pods have such a device.
pub(crate) fn unlimit(socket: &mut NetlinkSocket, ifb: &str) -> Result<(), NetworkError> {
    match if_nametoindex(ifb) {
        Ok(index) => bridge::delete_link(socket, index),
        Err(_) => Ok(()),
    }
}

/// What of the limits is missing, in words.
pub(crate) fn missing(
    socket: &mut NetlinkSocket,
    limits: Bandwidth,
    host_end: &str,
    ifb: &str,
) -> Result<Option<String>, NetworkError> {
    for (limited, name) in [(limits.ingress, host_end), (limits.egress, ifb)] {
        if limited.is_none() {
            continue;
        }
        let found = link::find(socket, name)?;
        if !found.is_some_and(|link| qdisc::is_limited(socket, link.index)) {
            return Ok(Some(format!("the bandwidth limit of {name} is missing")));
        }
    }
    Ok(None)
}

fn existing(socket: &mut NetlinkSocket, name: &str) -> Result<Link, NetworkError> {
    let step = "look up a link whose bandwidth is limited";
    link::find(socket, name)?.ok_or(NetworkError::Answer { step })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate_bits_per_s: u64, burst_bits: u64) -> Result<Option<Bucket>, String> {
        let direction = "ingress";
        let limit = Limit {
            direction,
            rate_bits_per_s,
            burst_bits,
        };
        limit.bucket().map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_bits_and_what_makes_no_sense_is_refused_by_name() {
        assert_eq!(limit(0, 0), Ok(None));
        let bucket = limit(1_000_000, 80_000).unwrap().unwrap();
        assert_eq!(
            (bucket.rate_bytes_per_s, bucket.burst_bytes),
            (125_000, 10_000)
        );
        // As containerd asks: the greatest number of 32 bits.
        assert!(limit(1_000_000, u32::MAX.into()).is_ok());
        for (rate, burst, field) in [
            (0, 1, "ingressRate"),
            (1, 0, "ingressBurst"),
            (7, 80_000, "ingressRate"),
            (8, 7, "ingressBurst"),
            (8, u64::MAX, "ingressBurst"),
        ] {
            let refusal = limit(rate, burst).unwrap_err();
            assert!(refusal.contains(field), "{rate} {burst}: {refusal}");
        }
    }

    #[test]
    fn the_devices_name_is_the_references() {
        // printf podsc1 | sha512sum | cut -c 1-12
        assert_eq!(ifb_name("pods", "c1"), "bwp48c5963fc74e");
    }
}
