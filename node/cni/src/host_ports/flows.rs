//! The host ports behind their mutex, and the flows that are forgotten after it.

use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{HostPorts, Ports, Protocol};
use crate::netlink::conntrack;
use crate::netlink::nft::Family;
use crate::netlink::socket::NetlinkSocket;

/// The host ports, of which each change is one request of netfilter.
#[derive(Debug)]
pub(crate) struct SharedHostPorts {
    state: Mutex<HostPorts>,
    forget: fn(&Ports),
}

/// The host ports while nobody else has them. When it goes, the mutex is free first, and then the
/// flows of the ports that were changed are forgotten: the kernel lists all flows of the node for
/// that, however many there are.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    // In the order in which they are dropped.
    state: MutexGuard<'a, HostPorts>,
    changed: Changed,
}

#[derive(Debug)]
struct Changed {
    ports: Vec<Ports>,
    forget: fn(&Ports),
}

impl SharedHostPorts {
    /// Of the node's table of this name.
    pub(crate) fn new(table: &str) -> Self {
        Self {
            state: Mutex::new(HostPorts::new(table)),
            forget: forget_flows,
        }
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked {
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
            changed: Changed {
                ports: Vec::new(),
                forget: self.forget,
            },
        }
    }
}

impl Deref for Locked<'_> {
    type Target = HostPorts;

    fn deref(&self) -> &HostPorts {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut HostPorts {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.changed.ports = std::mem::take(&mut self.state.changed);
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.ports.iter().for_each(self.forget);
    }
}

/// Packets of UDP follow the way of the ones before them, for half a minute and more, whatever the
/// rules say by now; so what is known of these ports is forgotten.
fn forget_flows(ports: &Ports) {
    let udp = ports
        .mappings
        .iter()
        .filter(|one| one.protocol == Protocol::Udp);
    let udp: Vec<u16> = udp.map(|one| one.host_port).collect();
    if udp.is_empty() {
        return;
    }
    let families: BTreeSet<_> = ports.addresses.iter().copied().map(Family::of).collect();
    for family in families {
        let forgotten = NetlinkSocket::netfilter()
            .and_then(|mut socket| conntrack::forget_udp(&mut socket, family, &udp));
        match forgotten {
            Ok(flows) => tracing::debug!(?udp, flows, "flows of UDP host ports forgotten"),
            Err(error) => tracing::warn!(?udp, %error, "old flows of UDP host ports may go on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static SHARED: LazyLock<SharedHostPorts> = LazyLock::new(|| SharedHostPorts {
        forget: |_| {
            let free = SHARED.state.try_lock().is_ok();
            FORGOTTEN.fetch_add(usize::from(free), Ordering::Relaxed);
        },
        ..SharedHostPorts::new("flows")
    });
    static FORGOTTEN: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn the_mutex_is_free_when_flows_are_forgotten() {
        let mut locked = SHARED.lock();
        locked.state.changed.push(Ports::new(&[], &[]));
        drop(locked);
        assert_eq!(FORGOTTEN.load(Ordering::Relaxed), 1);
        drop(SHARED.lock());
        assert_eq!(FORGOTTEN.load(Ordering::Relaxed), 1, "once");
    }
}
