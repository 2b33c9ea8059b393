//! Netlink: one function, one kernel request.
//!
//! [`socket`] sends batches and collects the answers; [`link`], [`address`] and [`route`] build
//! messages for rtnetlink, [`nft`] and [`conntrack`] for netfilter. A batch is one `send`: the
//! kernel works through it in order and has all answers ready when `send` returns.

pub(crate) mod address;
pub(crate) mod conntrack;
pub(crate) mod link;
pub(crate) mod nft;
pub(crate) mod route;
pub(crate) mod socket;
