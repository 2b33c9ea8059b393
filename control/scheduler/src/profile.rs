//! Which plugins take part, in which order.

use crate::bind::DefaultBinder;
use crate::filter::{
    NodeAffinity, NodeName, NodePorts, NodeResourcesFit, NodeUnschedulable, TaintToleration,
    VolumeBinding,
};
use crate::framework::{Bind, Filter, PostFilter, PreBind, PreFilter, PreScore, Reserve, Score};
use crate::score::{LeastAllocated, PreferNoSchedule};
use crate::volumes::VolumeStores;
use crate::volumes::reservations::Reservations;

/// Weight of taints among the scores (Kubernetes' default profile).
const TAINT_TOLERATION_WEIGHT: i64 = 3;

/// The plugins of a scheduler.
pub struct Profile {
    /// `spec.schedulerName` of the pods that it schedules.
    pub scheduler_name: &'static str,
    /// See [`PreFilter`].
    pub pre_filter: Vec<Box<dyn PreFilter>>,
    /// See [`Filter`]; the cheapest first.
    pub filter: Vec<Box<dyn Filter>>,
    /// See [`PostFilter`].
    pub post_filter: Vec<Box<dyn PostFilter>>,
    /// See [`PreScore`].
    pub pre_score: Vec<Box<dyn PreScore>>,
    /// See [`Score`]; each with its weight.
    pub score: Vec<(i64, Box<dyn Score>)>,
    /// See [`Reserve`].
    pub reserve: Vec<Box<dyn Reserve>>,
    /// See [`PreBind`].
    pub pre_bind: Vec<Box<dyn PreBind>>,
    /// See [`Bind`].
    pub bind: Box<dyn Bind>,
}

impl Profile {
    /// The default plugins, and the one that knows the volumes.
    pub(crate) fn with_volumes(stores: VolumeStores) -> Self {
        let mut profile = Self::default();
        let plugin = VolumeBinding {
            stores,
            reservations: Reservations::default(),
        };
        profile.pre_filter.push(Box::new(plugin.clone()));
        profile.filter.push(Box::new(plugin.clone()));
        profile.reserve.push(Box::new(plugin.clone()));
        profile.pre_bind.push(Box::new(plugin));
        profile
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            scheduler_name: "default-scheduler",
            pre_filter: vec![Box::new(NodeResourcesFit)],
            filter: vec![
                Box::new(NodeUnschedulable),
                Box::new(NodeName),
                Box::new(TaintToleration),
                Box::new(NodeAffinity),
                Box::new(NodePorts),
                Box::new(NodeResourcesFit),
            ],
            post_filter: Vec::new(),
            pre_score: Vec::new(),
            score: vec![
                (TAINT_TOLERATION_WEIGHT, Box::new(PreferNoSchedule)),
                (1, Box::new(LeastAllocated)),
            ],
            reserve: Vec::new(),
            pre_bind: Vec::new(),
            bind: Box::new(DefaultBinder),
        }
    }
}
