//! Who wants to know that a pod's network is there.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::request::PodIdentity;

/// A pod's network was attached.
#[derive(Clone, Debug)]
pub struct NetworkAttached {
    /// The sandbox.
    pub container_id: String,
    /// The pod, as the runtime named it.
    pub pod: PodIdentity,
    /// The pod's addresses, one per range set.
    pub addresses: Vec<IpAddr>,
    /// When it was done.
    pub finished_at: SystemTime,
    /// From the request's arrival until it was done.
    pub duration: Duration,
}

/// Is told of every attached pod, on the thread that serves the request and before the runtime
/// gets its answer: it must not block.
pub trait NetworkObserver: Send + Sync {
    /// A pod's network was attached.
    fn attached(&self, event: NetworkAttached);
}

/// Any function is an observer.
impl<F: Fn(NetworkAttached) + Send + Sync> NetworkObserver for F {
    fn attached(&self, event: NetworkAttached) {
        self(event);
    }
}
