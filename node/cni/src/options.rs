//! How the node's networks are run.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::observer::NetworkObserver;
use crate::shim::DEFAULT_SOCKET;

/// How many requests are worked on at once. The kernel does link requests one at a time, so more
/// of them only wait inside the kernel instead of in the socket's queue.
const WORKERS: usize = 4;
/// How long a request may take before it is undone. Half of what the shim waits.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// How long a sandbox may be missing in the runtime's list until it is taken for dead: as long as
/// the kubelet lets the runtime make one (`runtimeRequestTimeout` of four minutes for sandboxes).
const MISSING_LIMIT: Duration = Duration::from_mins(4);
/// Where the runtime mounts the namespaces of sandboxes: containerd and `ip netns` agree on it.
const NETNS_DIR: &str = "/run/netns";
/// The node's own nftables table.
pub const DEFAULT_NFT_TABLE: &str = "swiftlet";

/// Options of [`crate::shim_server::start`].
#[derive(Clone)]
pub struct NetworkOptions {
    /// Where the shim asks.
    pub socket: PathBuf,
    /// The plugin's conf as containerd will send it: its addresses are opened at the start, so
    /// that they can be reconciled, and its bridges are removed by a teardown.
    pub conf: Option<Vec<u8>>,
    /// Name of the nftables table of the masquerading, of the families `ip` and `ip6`; those of the
    /// host ports and of `macspoofchk` are named after it.
    pub nft_table: String,
    /// Requests worked on at once.
    pub workers: usize,
    /// How long one may take.
    pub request_limit: Duration,
    /// The namespace whose bridges these are; the process' own if `None`.
    pub host_netns: Option<PathBuf>,
    /// How long what nobody has is left alone by the sweeps.
    pub missing_limit: Duration,
    /// Where the runtime mounts the namespaces of sandboxes.
    pub netns_dir: PathBuf,
    /// Is told of every attached pod.
    pub observer: Option<Arc<dyn NetworkObserver>>,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(DEFAULT_SOCKET),
            conf: None,
            nft_table: DEFAULT_NFT_TABLE.to_owned(),
            workers: WORKERS,
            request_limit: REQUEST_LIMIT,
            host_netns: None,
            missing_limit: MISSING_LIMIT,
            netns_dir: PathBuf::from(NETNS_DIR),
            observer: None,
        }
    }
}

impl fmt::Debug for NetworkOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkOptions")
            .field("socket", &self.socket)
            .field("nft_table", &self.nft_table)
            .field("workers", &self.workers)
            .field("request_limit", &self.request_limit)
            .field("host_netns", &self.host_netns)
            .finish_non_exhaustive()
    }
}
