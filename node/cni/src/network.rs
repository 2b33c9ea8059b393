//! Pod networks: what each request does.
//!
//! ```text
//! ADD    reserve ─▶ Reserved ─link─▶ Linked ─address─▶ Addressed ─route─▶ Routed ─ports─▶ result
//!                       └──────────────┴───── undo ───────┴───────────────┘
//! DEL    close the host ports, free the address; the veth pair goes with the pod's namespace, and
//!        with it most of what bounds the pod (restrictions.rs), the rest is taken off (detach.rs)
//! CHECK  the lease, and the interface, address and routes in the pod
//! GC     free what no valid attachment holds
//! ```
//!
//! DEL never deletes a link: that takes 40 ms under the kernel's one lock for links, while every
//! other pod waits. Closing the namespace does the same in the background.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ipnet::IpNet;
use swiftlet_sys::netns;

use crate::bridge::{self, Bridge, BridgeSpec};
use crate::conf::NetworkConf;
use crate::error::NetworkError;
use crate::host_ports::{self, Locked, SharedHostPorts};
use crate::ipam::Pool;
use crate::ipam::range_set::RangeSet;
use crate::masquerade::{self, Masquerade};
use crate::netlink::socket::NetlinkSocket;
use crate::observer::NetworkAttached;
use crate::options::NetworkOptions;
use crate::request::{Attachment, Request};
use crate::result::AddResult;

mod bridges;
mod check;
mod detach;
mod in_flight;
mod leftovers;
mod names;
mod namespaces;
mod phases;
mod pod_ipv6;
mod restrictions;
mod rules;
mod sweep;

use bridges::Bridges;
use in_flight::InFlight;
pub(crate) use in_flight::Ticket;
use phases::{Host, Reserved};
use restrictions::{Port, Restrictions};
use sweep::Suspects;

/// Where host-local keeps its files when the conf does not say.
const DEFAULT_DATA_DIR: &str = "/var/lib/cni/networks";

/// Until when a request must be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    started: Instant,
    limit: Duration,
}

/// A network's addresses, and the ranges that they were opened with.
#[derive(Debug)]
struct OpenPool {
    sets: Vec<Vec<RangeSet>>,
    pool: Arc<Pool>,
}

/// All networks of a node. Its state is what the kernel and the files say; what is here saves
/// asking again.
///
/// Mutexes, because the users are threads that each hold one for microseconds, or for one request
/// of the kernel: those of the host ports and of the masquerading while a table is changed or read,
/// that of the bridges while the first pod of a network waits for its bridge.
#[derive(Debug)]
pub(crate) struct Network {
    options: NetworkOptions,
    pools: Mutex<HashMap<PathBuf, OpenPool>>,
    bridges: Bridges,
    masquerade: Mutex<Masquerade>,
    host_ports: SharedHostPorts,
    restrictions: Restrictions,
    /// What was nobody's at the last sweep.
    suspects: Mutex<Suspects>,
    in_flight: InFlight,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions) -> Self {
        Self {
            masquerade: Mutex::new(Masquerade::new(&options.nft_table)),
            host_ports: SharedHostPorts::new(&options.nft_table),
            restrictions: Restrictions::new(&options.nft_table),
            options,
            pools: Mutex::default(),
            bridges: Bridges::default(),
            suspects: Mutex::default(),
            in_flight: InFlight::default(),
        }
    }

    pub(crate) fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// Waits until no other request for the same container is served; they wait for this one until
    /// the ticket goes.
    pub(crate) fn begin<'a>(
        &'a self,
        request: &'a Request,
        deadline: Deadline,
    ) -> Result<Ticket<'a>, NetworkError> {
        let id = match request {
            Request::Add(attachment) | Request::Del(attachment) => &attachment.holder.container_id,
            _ => "",
        };
        let ticket = self.in_flight.begin(id, deadline.left());
        ticket.ok_or_else(|| deadline.exceeded())
    }

    /// Serves one request, whose ticket the caller holds; the bytes are for the plugin's stdout.
    pub(crate) fn serve(
        &self,
        host: &mut NetlinkSocket,
        request: &Request,
        conf: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<u8>, NetworkError> {
        let mut conf = match request {
            Request::Del(_) => NetworkConf::parse_to_remove(conf)?,
            _ => NetworkConf::parse(conf)?,
        };
        if let Request::Add(attachment) = request {
            conf.extras.add(&attachment.args);
            attachment.refuse_second(conf.extras.previous.as_ref())?;
        }
        match request {
            Request::Add(attachment) => self.add(host, attachment, &conf, deadline),
            Request::Del(attachment) => {
                self.detach(host, &conf, &attachment.holder)?;
                Ok(Vec::new())
            }
            Request::Check(attachment) => self.check(host, attachment, &conf),
            Request::Status => self.pool(&conf).map(|_| Vec::new()),
            Request::Gc => self.collect_garbage(&conf),
            Request::Version => Ok(versions(&conf.cni_version)),
        }
    }

    /// Opens a network's addresses, so that [`Self::reconcile`] sees them.
    pub(crate) fn open(&self, conf: &[u8]) -> Result<(), NetworkError> {
        let conf = NetworkConf::parse(conf)?;
        drop(self.host_ports(&conf)?);
        self.restrictions.adopt(&mut NetlinkSocket::route()?)?;
        let pool = self.pool(&conf)?;
        self.open_rules(&conf, !pool.holders().is_empty());
        Ok(())
    }

    /// Removes bridges, rules and unused address files. Runs in the host's namespace.
    pub(crate) fn teardown(&self) -> Result<(), NetworkError> {
        let mut errors = Vec::new();
        let mut names = self.bridges.names();
        if let Some(conf) = &self.options.conf {
            match NetworkConf::parse(conf) {
                Ok(conf) => names.extend(conf.bridges),
                Err(error) => errors.push(error),
            }
        }
        let mut socket = NetlinkSocket::route()?;
        for name in names {
            errors.extend(bridge::delete(&mut socket, &name).err());
        }
        errors.extend(masquerade::remove(&self.options.nft_table).err());
        errors.extend(host_ports::delete(&self.options.nft_table).err());
        errors.extend(self.restrictions.teardown().err());
        let pools = self.lock_pools();
        for open in pools.values() {
            errors.extend(open.pool.remove_if_unused().err());
        }
        NetworkError::collected(errors)
    }

    fn add(
        &self,
        socket: &mut NetlinkSocket,
        attachment: &Attachment,
        conf: &NetworkConf,
        deadline: Deadline,
    ) -> Result<Vec<u8>, NetworkError> {
        let pod_netns = netns::open(attachment.netns.as_deref().unwrap_or("".as_ref()))?;
        let pool = self.pool(conf)?;
        self.refuse_attached(&attachment.holder)?;
        let shard = names::shard(&attachment.holder, conf.bridges.len());
        let host = Host {
            network: self,
            socket,
            conf,
            attachment,
            pod_netns: &pod_netns,
        };
        let linked = Reserved::new(host, &pool, shard)?.link()?;
        let addressed = linked.within(deadline)?.address()?;
        let routed = addressed.within(deadline)?.route()?.tune()?.open_ports()?;
        let result = AddResult::new(&conf.cni_version, &routed.attached());
        self.tell(attachment, routed.ips(), deadline);
        serde_json::to_vec(&result).map_err(NetworkError::Decode)
    }

    fn check(
        &self,
        socket: &mut NetlinkSocket,
        at: &Attachment,
        conf: &NetworkConf,
    ) -> Result<Vec<u8>, NetworkError> {
        let lease = self.pool(conf)?.find(&at.holder)?;
        check::check(socket, at, conf, lease.as_ref())?;
        let holder = &at.holder;
        match self.restrictions.missing(socket, Port { conf, holder })? {
            None => Ok(Vec::new()),
            Some(reason) => Err(NetworkError::Check {
                container_id: holder.container_id.clone(),
                reason,
            }),
        }
    }

    fn tell(&self, attachment: &Attachment, addresses: Vec<IpAddr>, deadline: Deadline) {
        let duration = deadline.started.elapsed();
        let container_id = &attachment.holder.container_id;
        tracing::debug!(container_id, ?addresses, ?duration, "network attached");
        if let Some(observer) = &self.options.observer {
            observer.attached(NetworkAttached {
                container_id: container_id.clone(),
                pod: attachment.args.pod.clone(),
                addresses,
                finished_at: SystemTime::now(),
                duration,
            });
        }
    }

    fn open_pools(&self) -> Vec<Arc<Pool>> {
        let pools = self.lock_pools();
        pools.values().map(|open| Arc::clone(&open.pool)).collect()
    }

    /// The host ports, with what an earlier process wrote down.
    fn host_ports(&self, conf: &NetworkConf) -> Result<Locked<'_>, NetworkError> {
        let mut host_ports = self.lock_host_ports();
        host_ports.open(&data_dir(conf), &conf.subnets)?;
        Ok(host_ports)
    }

    fn lock_host_ports(&self) -> Locked<'_> {
        self.host_ports.lock()
    }

    /// The addresses of the conf's network, opened at the first request and when ranges change.
    fn pool(&self, conf: &NetworkConf) -> Result<Arc<Pool>, NetworkError> {
        let dir = data_dir(conf).join(&conf.name);
        let mut pools = self.lock_pools();
        match pools.entry(dir) {
            Entry::Occupied(open) if open.get().sets == conf.range_sets => {
                Ok(Arc::clone(&open.get().pool))
            }
            entry => {
                let pool = Arc::new(Pool::open(entry.key(), conf.range_sets.clone())?);
                let sets = conf.range_sets.clone();
                entry.insert_entry(OpenPool {
                    sets,
                    pool: Arc::clone(&pool),
                });
                Ok(pool)
            }
        }
    }

    /// The same for what only frees: whatever the ranges are, those of before serve.
    fn pool_to_release(&self, conf: &NetworkConf) -> Result<Arc<Pool>, NetworkError> {
        let known = self
            .lock_pools()
            .get(&data_dir(conf).join(&conf.name))
            .map(|open| Arc::clone(&open.pool));
        known.map_or_else(|| self.pool(conf), Ok)
    }

    /// The folders of the networks that are open.
    fn pool_folders(&self) -> Vec<PathBuf> {
        self.lock_pools().keys().cloned().collect()
    }

    fn lock_pools(&self) -> MutexGuard<'_, HashMap<PathBuf, OpenPool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bridge of a range set, made at the first request.
    fn bridge(
        &self,
        socket: &mut NetlinkSocket,
        conf: &NetworkConf,
        shard: usize,
        pool: &Pool,
    ) -> Result<Bridge, NetworkError> {
        let bridge = self.bridges.ensure(socket, &bridge_spec(conf, shard))?;
        // For each network that uses it, whoever was the first.
        for address in &bridge.foreign {
            pool.exclude(*address);
        }
        Ok(bridge)
    }
}

impl Deadline {
    pub(crate) fn new(limit: Duration) -> Self {
        Self {
            started: Instant::now(),
            limit,
        }
    }

    fn check(self) -> Result<(), NetworkError> {
        if self.left().is_zero() {
            return Err(self.exceeded());
        }
        Ok(())
    }

    fn left(self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }

    fn exceeded(self) -> NetworkError {
        NetworkError::Deadline {
            limit_ms: self.limit.as_millis(),
        }
    }
}

fn data_dir(conf: &NetworkConf) -> PathBuf {
    let written = conf.data_dir.clone();
    written.unwrap_or_else(|| PathBuf::from(DEFAULT_DATA_DIR))
}

fn bridge_spec(conf: &NetworkConf, shard: usize) -> BridgeSpec {
    let ranges = conf.range_sets[shard].iter().flat_map(RangeSet::ranges);
    let mut gateways: Vec<_> = ranges
        .filter(|_| conf.is_gateway)
        .filter_map(|range| IpNet::new(range.gateway, range.subnet.prefix_len()).ok())
        .collect();
    gateways.dedup();
    BridgeSpec {
        name: conf.bridges[shard].clone(),
        gateways,
        mtu: conf.mtu,
        promiscuous: conf.promiscuous,
        force_address: conf.extras.force_address,
        vlan: conf.restrictions.vlan.clone(),
    }
}

fn versions(conf_version: &str) -> Vec<u8> {
    let supported = crate::shim::SUPPORTED_VERSIONS;
    serde_json::json!({ "cniVersion": conf_version, "supportedVersions": supported })
        .to_string()
        .into_bytes()
}
