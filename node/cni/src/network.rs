//! Pod networks: what each request does.
//!
//! ```text
//! ADD    reserve ─▶ Reserved ─link─▶ Linked ─address─▶ Addressed ─route─▶ Routed ─ports─▶ result
//!                       └──────────────┴───── undo ───────┴───────────────┘
//! DEL    close the host ports, free the address; the veth pair goes with the pod's namespace, and
//!        with it most of what bounds the pod (restrictions.rs), the rest is taken off
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
use crate::host_ports::{self, HostPorts};
use crate::ipam::allocator::Holder;
use crate::ipam::range_set::RangeSet;
use crate::ipam::{Pool, Retain};
use crate::masquerade::{self, Masquerade};
use crate::netlink::socket::NetlinkSocket;
use crate::observer::NetworkAttached;
use crate::options::NetworkOptions;
use crate::request::{Attachment, Request};
use crate::result::AddResult;

mod check;
mod in_flight;
mod leftovers;
mod names;
mod phases;
mod pod_ipv6;
mod restrictions;
mod sweep;

use in_flight::InFlight;
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
/// Mutexes, because the users are threads that each hold one for microseconds; only the first pod
/// of a network waits for a kernel request under one, and so do the others, on purpose.
#[derive(Debug)]
pub(crate) struct Network {
    options: NetworkOptions,
    pools: Mutex<HashMap<PathBuf, OpenPool>>,
    bridges: Mutex<HashMap<String, (BridgeSpec, Bridge)>>,
    masquerade: Mutex<Masquerade>,
    host_ports: Mutex<HostPorts>,
    restrictions: Restrictions,
    /// What was nobody's at the last sweep.
    suspects: Mutex<Suspects>,
    in_flight: InFlight,
}

impl Network {
    pub(crate) fn new(options: NetworkOptions) -> Self {
        Self {
            masquerade: Mutex::new(Masquerade::new(&options.nft_table)),
            host_ports: Mutex::new(HostPorts::new(&options.nft_table)),
            restrictions: Restrictions::new(&options.nft_table),
            options,
            pools: Mutex::default(),
            bridges: Mutex::default(),
            suspects: Mutex::default(),
            in_flight: InFlight::default(),
        }
    }

    pub(crate) fn options(&self) -> &NetworkOptions {
        &self.options
    }

    /// Serves one request; the bytes are for the plugin's stdout.
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
        let id = match request {
            Request::Add(attachment) | Request::Del(attachment) => &attachment.holder.container_id,
            _ => "",
        };
        let _ticket = self.in_flight.begin(id);
        match request {
            Request::Add(attachment) => self.add(host, attachment, &conf, deadline),
            Request::Del(attachment) => {
                // The ports first: the address may be another pod's a moment later.
                let ports = self
                    .host_ports(&conf)?
                    .remove(&attachment.holder.container_id);
                let port = Port {
                    conf: &conf,
                    holder: &attachment.holder,
                };
                let bounds = self.restrictions.remove(host, port);
                let address = self.pool(&conf)?.release(&attachment.holder).map(drop);
                let errors = [ports, bounds, address].into_iter().filter_map(Result::err);
                NetworkError::collected(errors.collect())?;
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
        self.pool(&conf).map(drop)
    }

    /// Removes bridges, rules and unused address files. Runs in the host's namespace.
    pub(crate) fn teardown(&self) -> Result<(), NetworkError> {
        let mut errors = Vec::new();
        let mut names = self.bridge_names();
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
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn collect_garbage(&self, conf: &NetworkConf) -> Result<Vec<u8>, NetworkError> {
        let valid = |holder: &Holder| {
            conf.valid_attachments
                .iter()
                .any(|(id, ifname)| *id == holder.container_id && *ifname == holder.ifname)
        };
        self.restrictions.collect_garbage(conf)?;
        let freed = self.pool(conf)?.retain(valid, Retain::All)?;
        tracing::info!(
            network = conf.name,
            freed,
            "addresses without a valid attachment freed"
        );
        Ok(Vec::new())
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
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.values().map(|open| Arc::clone(&open.pool)).collect()
    }

    /// The host ports, with what an earlier process wrote down.
    fn host_ports(&self, conf: &NetworkConf) -> Result<MutexGuard<'_, HostPorts>, NetworkError> {
        let mut host_ports = self.lock_host_ports();
        host_ports.open(&data_dir(conf), &conf.subnets)?;
        Ok(host_ports)
    }

    fn lock_host_ports(&self) -> MutexGuard<'_, HostPorts> {
        self.host_ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of the conf's network, opened at the first request and when ranges change.
    fn pool(&self, conf: &NetworkConf) -> Result<Arc<Pool>, NetworkError> {
        let dir = data_dir(conf).join(&conf.name);
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The bridge of a range set, made at the first request.
    fn bridge(
        &self,
        socket: &mut NetlinkSocket,
        conf: &NetworkConf,
        shard: usize,
        pool: &Pool,
    ) -> Result<Bridge, NetworkError> {
        let spec = bridge_spec(conf, shard);
        let mut bridges = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, bridge)) = bridges.get(&spec.name)
            && *known == spec
        {
            return Ok(bridge.clone());
        }
        let bridge = bridge::ensure(socket, &spec)?;
        for address in &bridge.foreign {
            pool.exclude(*address);
        }
        bridges.insert(spec.name.clone(), (spec, bridge.clone()));
        Ok(bridge)
    }

    /// The bridges that pods were attached to since the start.
    fn bridge_names(&self) -> Vec<String> {
        let bridges = self.bridges.lock().unwrap_or_else(PoisonError::into_inner);
        bridges.keys().cloned().collect()
    }

    /// Somebody took the bridge away: look again at the next request.
    fn forget_bridge(&self, name: &str) {
        self.bridges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    fn masquerade(&self, conf: &NetworkConf) -> Result<(), NetworkError> {
        if !conf.masquerade {
            return Ok(());
        }
        let mut masquerade = self
            .masquerade
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        masquerade.ensure(&conf.name, &conf.subnets)
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
        if self.started.elapsed() < self.limit {
            return Ok(());
        }
        Err(NetworkError::Deadline {
            limit_ms: self.limit.as_millis(),
        })
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
