//! The points at which plugins take part in a scheduling cycle, in the order in which they are
//! called.
//!
//! ```text
//! PreFilter → Filter ─┬─▶ PreScore → Score → Reserve → PreBind → Bind
//!                     └─▶ PostFilter (no node fits)
//! ```
//!
//! Everything up to Score is pure: pod and snapshot in, verdict out.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_client::Client;

use crate::bind::BindError;
use crate::node_info::{NodeInfo, Snapshot};

/// Best score of a node (Kubernetes' `MaxNodeScore`).
pub const SCORE_MAX: i64 = 100;

/// What plugins of one cycle tell each other; one value per type.
#[derive(Default)]
pub struct Cycle {
    values: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl Cycle {
    /// Leaves a value for a later point.
    pub fn set<T: Any + Send + Sync>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Box::new(value));
    }

    /// The value that an earlier point left.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.values
            .get(&TypeId::of::<T>())
            .and_then(|value| value.downcast_ref())
    }
}

/// Why a node (or every node) cannot take the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that says so.
    pub plugin: &'static str,
    /// Why, in Kubernetes' words.
    pub reasons: Vec<String>,
}

impl Rejection {
    /// One reason.
    pub fn new(plugin: &'static str, reason: impl Into<String>) -> Self {
        Self {
            plugin,
            reasons: vec![reason.into()],
        }
    }
}

/// Called once per cycle, before any node is looked at.
pub trait PreFilter: Send + Sync {
    /// Computes what the filter needs; may refuse the pod on all nodes.
    fn pre_filter(
        &self,
        cycle: &mut Cycle,
        pod: &Pod,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection>;
}

/// Called for each node.
pub trait Filter: Send + Sync {
    /// Whether the node can take the pod.
    fn filter(&self, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> Result<(), Rejection>;
}

/// Called when no node can take the pod.
pub trait PostFilter: Send + Sync {
    /// May name a node on which the pod will fit later, such as after preemption.
    fn post_filter(
        &self,
        cycle: &Cycle,
        pod: &Pod,
        snapshot: &Snapshot,
        rejections: &BTreeMap<String, Rejection>,
    ) -> PostFilterVerdict;
}

/// What a PostFilter plugin found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostFilterVerdict {
    /// The node on which the pod will fit later.
    pub nominated: Option<String>,
    /// What is appended to the pod's message.
    pub message: String,
}

/// Called once per cycle, with the nodes that can take the pod.
pub trait PreScore: Send + Sync {
    /// Computes what the scores need.
    fn pre_score(&self, cycle: &mut Cycle, pod: &Pod, nodes: &[&NodeInfo]);
}

/// Called for each node that can take the pod.
pub trait Score: Send + Sync {
    /// How good the node is, in units of the plugin's own.
    fn score(&self, cycle: &Cycle, pod: &Pod, node: &NodeInfo) -> i64;

    /// Brings the scores of all nodes into 0..=[`SCORE_MAX`].
    fn normalize(&self, _scores: &mut [i64]) {}
}

/// Called when a node has been chosen.
pub trait Reserve: Send + Sync {
    /// Sets aside what the pod needs there.
    fn reserve(&self, pod: &Pod, node: &str) -> Result<(), Rejection>;

    /// Takes it back. May be called for what was not reserved.
    fn unreserve(&self, pod: &Pod, node: &str);
}

/// Called before the binding is written, outside the scheduling loop.
pub trait PreBind: Send + Sync {
    /// Prepares what the node needs before the pod may go there.
    fn pre_bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a Pod,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), BindError>>;
}

/// Writes the binding.
pub trait Bind: Send + Sync {
    /// Binds the pod to the node.
    fn bind<'a>(
        &'a self,
        client: &'a Client,
        pod: &'a Pod,
        node: &'a str,
    ) -> BoxFuture<'a, Result<(), BindError>>;
}
