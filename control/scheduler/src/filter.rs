//! Filters: can this node take the pod?

mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_fit;
mod node_unschedulable;
mod taint_toleration;
mod volume_binding;

pub(crate) use node_affinity::NodeAffinity;
pub(crate) use node_name::NodeName;
pub(crate) use node_ports::NodePorts;
pub(crate) use node_resources_fit::NodeResourcesFit;
pub(crate) use node_unschedulable::NodeUnschedulable;
pub(crate) use taint_toleration::{TaintToleration, tolerates};
pub(crate) use volume_binding::{PLUGIN as VOLUME_BINDING, VolumeBinding};

#[cfg(test)]
mod tests;
