//! The other end of the shim's socket: a few threads that each take a request and serve it.
//!
//! Threads and no tasks: a netlink request is done when `send` returns, so a task would block its
//! runtime for as long as the kernel's lock is taken. Each worker holds its own netlink socket in
//! the host's namespace. What waits, waits in the listener's queue in the kernel; no request is
//! ever in memory here without a thread that works on it.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, shutdown};
use swiftlet_sys::netns;

use crate::conf::NetworkConf;
use crate::disk;
use crate::error::NetworkError;
use crate::failpoint;
use crate::netlink::socket::NetlinkSocket;
use crate::network::{Deadline, Network};
use crate::options::NetworkOptions;
use crate::request::Request;
use crate::wire::{ShimReply, ShimRequest};

/// How long a client may take to say what it wants, and to read the answer.
const CLIENT_LIMIT: Duration = Duration::from_secs(2);
/// Pause after a failed `accept`, so that a lasting failure does not burn a core.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);
/// How long a socket may still be served by another process before it is taken for a second node.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks at that socket.
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(10);

/// The running network of a node. Dropping it is a [`NetworkHandle::shutdown`].
#[derive(Debug)]
pub struct NetworkHandle {
    network: Arc<Network>,
    listener: Arc<UnixListener>,
    host_netns: Option<Arc<OwnedFd>>,
    workers: Vec<JoinHandle<()>>,
}

/// Looks for leftovers of sandboxes that the runtime never heard of, or that it lost.
#[derive(Clone, Debug)]
pub struct Sweeper {
    network: Arc<Network>,
    host_netns: Option<Arc<OwnedFd>>,
}

impl Sweeper {
    /// Frees what belongs to sandboxes that are missing in `live` for the second time in a row, and
    /// says of how many. For a period far longer than a sandbox takes to be made.
    pub fn sweep(&self, live: &[&str]) -> Result<usize, NetworkError> {
        in_host(self.host_netns.as_deref(), || self.network.sweep(live))
    }

    /// The containers that hold anything at this moment.
    pub fn holding(&self) -> HashSet<String> {
        self.network.holding()
    }

    /// Frees at one look what those of `held` have that are missing in `live`, and says of how
    /// many. Only for holders from before the runtime that `live` comes from was asked for
    /// anything: whoever was making them is gone. Blocks while a request for one of them is served.
    pub fn free_lost(&self, held: HashSet<String>, live: &[&str]) -> Result<usize, NetworkError> {
        in_host(self.host_netns.as_deref(), || {
            self.network.free_lost(held, live)
        })
    }
}

/// Starts to serve requests of the shim.
///
/// # Errors
/// If another process serves the socket, or it cannot be made, or a namespace cannot be entered.
pub fn start(options: NetworkOptions) -> Result<NetworkHandle, NetworkError> {
    let host_netns = options
        .host_netns
        .as_deref()
        .map(netns::open)
        .transpose()?
        .map(Arc::new);
    let network = Arc::new(Network::new(options));
    if let Some(conf) = &network.options().conf {
        in_host(host_netns.as_deref(), || network.open(conf))?;
    }
    let path = &network.options().socket;
    let listener = Arc::new(listen(path).map_err(listen_error(path))?);
    let count = network.options().workers.max(1);
    let mut handle = NetworkHandle {
        network,
        listener,
        host_netns,
        workers: Vec::new(),
    };
    let (ready, readiness) = mpsc::sync_channel(count);
    for _ in 0..count {
        handle.spawn_worker(ready.clone())?;
    }
    drop(ready);
    // An error here drops the handle, which ends the workers that did start.
    readiness.iter().take(count).collect::<Result<(), _>>()?;
    Ok(handle)
}

impl NetworkHandle {
    /// Frees addresses that an earlier process reserved for sandboxes that are not in `live`, and
    /// says how many. Addresses reserved since the start are safe, however old the list is.
    pub fn reconcile(&self, live: &[&str]) -> Result<usize, NetworkError> {
        in_host(self.host_netns.as_deref(), || self.network.reconcile(live))
    }

    /// Who looks for leftovers from time to time.
    pub fn sweeper(&self) -> Sweeper {
        Sweeper {
            network: Arc::clone(&self.network),
            host_netns: self.host_netns.clone(),
        }
    }

    /// Removes the bridges that this program made, its nftables table and, if no address is held,
    /// the address files; then ends.
    pub fn teardown(self) -> Result<(), NetworkError> {
        in_host(self.host_netns.as_deref(), || self.network.teardown())
    }

    /// Finishes the requests that are being worked on, and ends. Blocks for as long as they take,
    /// at most the request limit. The networks stay.
    pub fn shutdown(self) {
        drop(self);
    }

    fn spawn_worker(
        &mut self,
        ready: SyncSender<Result<(), NetworkError>>,
    ) -> Result<(), NetworkError> {
        let network = Arc::clone(&self.network);
        let listener = Arc::clone(&self.listener);
        let host_netns = self.host_netns.clone();
        let path = self.network.options().socket.clone();
        let work = move || match enter(host_netns) {
            Ok(mut socket) => {
                // The receiver waits for this, or has failed already and ends the listener.
                let _ = ready.send(Ok(()));
                drop(ready);
                serve_connections(&network, &listener, &mut socket);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let thread = thread::Builder::new().name("cni".to_owned()).spawn(work);
        self.workers.push(thread.map_err(listen_error(&path))?);
        Ok(())
    }
}

impl Drop for NetworkHandle {
    fn drop(&mut self) {
        // Wakes every `accept` with an error; connections that wait are refused.
        if let Err(error) = shutdown(self.listener.as_raw_fd(), Shutdown::Both) {
            tracing::warn!(%error, "the CNI listener did not shut down");
        }
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("a CNI worker panicked");
            }
        }
        let path = &self.network.options().socket;
        if let Err(error) = disk::remove_file(path) {
            tracing::warn!(%error, path = %path.display(), "the CNI socket stays");
        }
    }
}

/// Binds under another name and renames, so that nobody ever finds the socket with wider
/// permissions, and a stale one is replaced. A live one is an error.
fn listen(path: &Path) -> io::Result<UnixListener> {
    // A predecessor that was just killed holds its socket until its last thread is gone.
    let deadline = Instant::now() + PREDECESSOR_LIMIT;
    while UnixStream::connect(path).is_ok() {
        if Instant::now() > deadline {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        thread::sleep(PREDECESSOR_PAUSE);
    }
    if let Some(parent) = path.parent() {
        disk::create_dir_all(parent)?;
    }
    let new = path.with_extension(format!("new.{}", std::process::id()));
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    disk::rename(&new, path)?;
    Ok(listener)
}

fn listen_error(path: &Path) -> impl FnOnce(io::Error) -> NetworkError {
    let path = path.to_path_buf();
    move |source| NetworkError::Listen { path, source }
}

/// Works in the host's namespace, for a moment.
fn in_host<T: Send>(
    host_netns: Option<&OwnedFd>,
    work: impl FnOnce() -> Result<T, NetworkError> + Send,
) -> Result<T, NetworkError> {
    match host_netns {
        Some(netns) => netns::run_in(netns.as_fd(), work)?,
        None => work(),
    }
}

/// Moves the worker's thread into the host's namespace, where it stays.
fn enter(host_netns: Option<Arc<OwnedFd>>) -> Result<NetlinkSocket, NetworkError> {
    if let Some(netns) = host_netns {
        netns::enter(netns.as_fd())?;
    }
    NetlinkSocket::route()
}

fn serve_connections(network: &Network, listener: &UnixListener, socket: &mut NetlinkSocket) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // EINVAL: the listener was shut down.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            // The client gave up, or descriptors are short: the next one may do better.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a CNI request");
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let serve = AssertUnwindSafe(|| serve_one(network, &stream, socket));
        match catch_unwind(serve) {
            Ok(Ok(())) => (),
            Ok(Err(error)) => tracing::warn!(%error, "a CNI client went away"),
            // The shim sees the connection close and says so; the next request has this worker.
            Err(_) => tracing::error!("a CNI request panicked"),
        }
    }
}

fn serve_one(
    network: &Network,
    mut stream: &UnixStream,
    socket: &mut NetlinkSocket,
) -> io::Result<()> {
    let deadline = Deadline::new(network.options().request_limit);
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let shim = ShimRequest::read_from(&mut stream)?;
    let request = match Request::parse(&shim) {
        Ok(request) => request,
        Err(error) => return refusal(&shim, &error)?.write_to(&mut stream),
    };
    // Until the answer is written: what comes for the same container meanwhile waits.
    let _ticket = match network.begin(&request, deadline) {
        Ok(ticket) => ticket,
        Err(error) => return refusal(&shim, &error)?.write_to(&mut stream),
    };
    // It may have waited longer than the runtime, which takes it for failed by now.
    if matches!(request, Request::Add(_)) && has_hung_up(stream) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let outcome = network.serve(socket, &request, &shim.conf, deadline);
    let done = outcome.is_ok();
    let reply = match outcome {
        Ok(result) => ShimReply::Result(result),
        Err(error) => refusal(&shim, &error)?,
    };
    failpoint::pass("before", &"the answer");
    let told = reply.write_to(&mut stream);
    if let (Request::Add(attachment), true, Err(_)) = (&request, done, &told) {
        let id = &shim.container_id;
        match network.undo_add(socket, attachment, &shim.conf) {
            Ok(()) => tracing::info!(id, "an ADD that nobody waited for is undone"),
            Err(error) => tracing::warn!(id, %error, "an ADD that nobody waited for stays"),
        }
    }
    told
}

fn refusal(shim: &ShimRequest, error: &NetworkError) -> io::Result<ShimReply> {
    let error = error.to_cni(&NetworkConf::version_of(&shim.conf));
    tracing::warn!(command = shim.command, id = shim.container_id, %error, "refused");
    Ok(ShimReply::Error(serde_json::to_vec(&error)?))
}

/// Whether the client has closed its end. It says nothing after its request, so what comes is the
/// end, or nothing.
fn has_hung_up(stream: &UnixStream) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    let read = recv(stream.as_raw_fd(), &mut [0], flags);
    matches!(read, Ok(0) | Err(Errno::ECONNRESET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_of_a_predecessor_that_is_dying_is_taken_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cni.sock");
        let predecessor = UnixListener::bind(&path).expect("bound");
        let dying = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            drop(predecessor);
        });
        listen(&path).expect("it is gone by then");
        dying.join().expect("no panic");
    }
}
