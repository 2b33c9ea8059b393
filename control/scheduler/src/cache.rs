//! Nodes with what is used of them.
//!
//! A pod that has been given a node counts there at once, before the API has said so:
//!
//! ```text
//!            assume              finish_binding          watch shows it bound
//!   (none) ─────────▶ Assumed{∞} ───────────────▶ Assumed{+30 s} ──────────────▶ Bound
//!                        │ forget (not bound)         │ expire                     │ remove
//!                        └───────────────▶ (none) ◀───┴────────────────────────────┘
//! ```

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use imbl::OrdMap;
use k8s_openapi::api::core::v1::{Node, Pod};
use swiftlet_client::Object;
use tokio::time::Instant;

use crate::node_info::{NodeInfo, PodUse, Snapshot};

/// How long a pod counts on its node without being seen there, after its binding was written.
const ASSUMPTION_LIFETIME: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Cache {
    nodes: OrdMap<String, Arc<NodeInfo>>,
    pods: HashMap<String, CachedPod>,
    by_node: HashMap<String, BTreeSet<String>>,
    expiries: BTreeSet<(Instant, String)>,
}

struct CachedPod {
    node: String,
    takes: PodUse,
    state: PodState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PodState {
    /// Chosen here; the binding is under way, or was written and expires then.
    Assumed { expires: Option<Instant> },
    /// The API says so.
    Bound,
}

impl Cache {
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.nodes.clone())
    }

    pub(crate) fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.name().to_owned();
        if let Some(known) = self.nodes.get_mut(&name) {
            Arc::make_mut(known).set_node(Arc::clone(node));
            return;
        }
        let mut info = NodeInfo::new(Arc::clone(node));
        for uid in self.by_node.get(&name).into_iter().flatten() {
            if let Some(pod) = self.pods.get(uid) {
                info.add(&pod.takes);
            }
        }
        self.nodes.insert(name, Arc::new(info));
    }

    /// The node's pods stay known, in case it comes back before they go.
    pub(crate) fn remove_node(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Counts a pod on a node before the API does.
    pub(crate) fn assume(&mut self, pod: &Pod, node: &str) {
        self.insert(pod, node, PodState::Assumed { expires: None });
    }

    /// The binding is written: from now on the watch has 30 s to show it.
    pub(crate) fn finish_binding(&mut self, uid: &str, now: Instant) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        if pod.state == (PodState::Assumed { expires: None }) {
            let expires = now + ASSUMPTION_LIFETIME;
            pod.state = PodState::Assumed {
                expires: Some(expires),
            };
            self.expiries.insert((expires, uid.to_owned()));
        }
    }

    /// The binding failed.
    pub(crate) fn forget(&mut self, uid: &str) {
        if self.is_assumed(uid) {
            self.remove(uid);
        }
    }

    pub(crate) fn is_assumed(&self, uid: &str) -> bool {
        self.pods
            .get(uid)
            .is_some_and(|pod| pod.state != PodState::Bound)
    }

    /// The API says that the pod is on its node.
    pub(crate) fn set_pod(&mut self, pod: &Pod, node: &str) {
        self.insert(pod, node, PodState::Bound);
    }

    /// The pod is gone, or has ended; false when it was not known.
    pub(crate) fn remove(&mut self, uid: &str) -> bool {
        let Some(pod) = self.pods.remove(uid) else {
            return false;
        };
        if let PodState::Assumed {
            expires: Some(expires),
        } = pod.state
        {
            self.expiries.remove(&(expires, uid.to_owned()));
        }
        if let Some(info) = self.nodes.get_mut(&pod.node) {
            Arc::make_mut(info).remove(&pod.takes);
        }
        if let Some(uids) = self.by_node.get_mut(&pod.node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
        true
    }

    /// When the next assumption expires.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(expires, _)| *expires)
    }

    /// Drops assumptions that the API never confirmed; answers whether there were any.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let mut any = false;
        while let Some((expires, uid)) = self.expiries.first().cloned() {
            if expires > now {
                break;
            }
            any |= self.remove(&uid);
        }
        any
    }

    fn insert(&mut self, pod: &Pod, node: &str, state: PodState) {
        let uid = pod.uid().to_owned();
        let takes = PodUse::of(pod);
        if let Some(known) = self.pods.get_mut(&uid)
            && known.node == node
            && known.takes == takes
            && known.state == state
        {
            return;
        }
        self.remove(&uid);
        if let Some(info) = self.nodes.get_mut(node) {
            Arc::make_mut(info).add(&takes);
        }
        self.by_node
            .entry(node.to_owned())
            .or_default()
            .insert(uid.clone());
        self.pods.insert(
            uid,
            CachedPod {
                node: node.to_owned(),
                takes,
                state,
            },
        );
    }
}
