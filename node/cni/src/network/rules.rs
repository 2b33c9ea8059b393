//! The rules of nftables that stand for all pods at once: others flush them.

use std::sync::{MutexGuard, PoisonError};

use super::Network;
use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::host_check;
use crate::masquerade::Masquerade;
use crate::netlink::socket::NetlinkSocket;

impl Network {
    /// Sees to it that the pods of a network are masqueraded, or not, as its conf says.
    pub(super) fn masquerade(&self, conf: &NetworkConf) -> Result<(), NetworkError> {
        let mut masquerade = self.lock_masquerade();
        if conf.masquerade {
            return masquerade.ensure(&conf.name, &conf.subnets);
        }
        // Rules of an older conf; a node without nftables has none, and needs none.
        if let Err(error) = masquerade.leave(&conf.name) {
            tracing::debug!(%error, network = conf.name, "masquerading is not looked at");
        }
        Ok(())
    }

    /// At the start: what has to be there without a new pod that asks for it.
    pub(super) fn open_rules(&self, conf: &NetworkConf, has_pods: bool) {
        if has_pods && let Err(error) = self.masquerade(conf) {
            tracing::warn!(%error, network = conf.name, "running pods are not masqueraded");
        }
        if conf.is_gateway && conf.subnets.iter().any(|subnet| subnet.addr().is_ipv6()) {
            host_check::warn_of_routes_to_lose();
        }
    }

    /// Looks at the rules as they are in the kernel, and writes anew what somebody has changed.
    pub(super) fn verify_rules(&self) {
        // One mutex after the other.
        let masquerading = self.lock_masquerade().verify();
        report("masquerading", &masquerading);
        let host_ports = self.lock_host_ports().verify();
        report("host ports", &host_ports);
        report("guards against spoofed frames", &self.verify_guards());
    }

    fn verify_guards(&self) -> Result<bool, NetworkError> {
        self.restrictions.verify(&mut NetlinkSocket::route()?)
    }

    fn lock_masquerade(&self) -> MutexGuard<'_, Masquerade> {
        let masquerade = self.masquerade.lock();
        masquerade.unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(rules: &str, verified: &Result<bool, NetworkError>) {
    match verified {
        Ok(false) => {}
        Ok(true) => tracing::warn!(rules, "somebody has changed them: written again"),
        Err(error) => tracing::warn!(rules, %error, "they cannot be looked at"),
    }
}
