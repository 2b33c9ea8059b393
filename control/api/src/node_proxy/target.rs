//! Which container of a pod is meant, and where its node is.
//!
//! Rules and words: `validateContainer`, `LogLocation` and `streamLocation` in
//! `pkg/registry/core/pod/strategy.go` of Kubernetes.

use std::net::IpAddr;

use serde_json::Value;
use swiftlet_client::api::{ApiError, ObjectName, resources};

use crate::api::ApiServer;
use crate::encode;
use crate::error;
use crate::registry::Resource;
use crate::route::{self, Target};

/// The port of a node that does not say (`ports.KubeletPort`).
const KUBELET_PORT: u16 = 10250;

/// A stored pod.
pub(super) struct Pod(Value);

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The node's name.
    pub(super) node: String,
    /// Its address.
    pub(super) address: IpAddr,
    /// Its port.
    pub(super) port: u16,
}

impl Pod {
    /// The pod that a request names.
    pub(super) fn find(api: &ApiServer, target: &Target) -> Result<Self, ApiError> {
        let entry = api.find(target)?;
        let value = serde_json::from_slice(&entry.value).map_err(error::internal)?;
        Ok(Self(value))
    }

    #[cfg(test)]
    pub(super) fn of(value: Value) -> Self {
        Self(value)
    }

    fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Names of its containers of one sort.
    fn containers(&self, list: &str) -> impl Iterator<Item = &str> {
        let list = self.0["spec"][list].as_array();
        list.into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
    }

    /// The container that is meant: the one that is named, or the only one.
    pub(super) fn container(&self, named: &str) -> Result<String, ApiError> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        let all: Vec<&str> = lists
            .into_iter()
            .flat_map(|list| self.containers(list))
            .collect();
        let pod = self.name();
        if !named.is_empty() {
            return if all.contains(&named) {
                Ok(named.to_owned())
            } else {
                Err(error::bad_request(format!(
                    "container {named} is not valid for pod {pod}"
                )))
            };
        }
        let main: Vec<&str> = self.containers("containers").collect();
        if let [only] = main.as_slice() {
            return Ok((*only).to_owned());
        }
        Err(error::bad_request(format!(
            "a container name must be specified for pod {pod}, choose one of: [{}]",
            all.join(" ")
        )))
    }

    /// The node that it is bound to; `None` before it is bound.
    pub(super) fn node(&self) -> Option<&str> {
        let node = self.0["spec"]["nodeName"].as_str();
        node.filter(|node| !node.is_empty())
    }
}

/// Where a pod's node is reached.
pub(super) fn place(api: &ApiServer, node: &str) -> Result<Place, ApiError> {
    let name = ObjectName::new(resources::NODES, "", node);
    let resource = nodes()?;
    let path = encode::path(resource, &name.namespace, &name.name);
    let snapshot = api.snapshot();
    let entry = snapshot.get(&path);
    let entry = entry.ok_or_else(|| error::not_found(resource, node))?;
    let value = serde_json::from_slice(&entry.value).map_err(error::internal)?;
    place_of(node, &value)
}

fn nodes() -> Result<&'static Resource, ApiError> {
    route::resource(&resources::NODES).ok_or_else(error::unknown_path)
}

/// Where a node says that it is.
pub(super) fn place_of(node: &str, object: &Value) -> Result<Place, ApiError> {
    let status = &object["status"];
    let addresses = status["addresses"].as_array();
    // Of kube-apiserver's `--kubelet-preferred-address-types`, host names come first: here no
    // resolver is asked.
    let address = ["InternalIP", "ExternalIP"].iter().find_map(|wanted| {
        let mut of_type = addresses
            .into_iter()
            .flatten()
            .filter(|one| one["type"] == **wanted);
        of_type.find_map(|one| one["address"].as_str()?.parse().ok())
    });
    let address = address.ok_or_else(|| {
        let known = status["addresses"].to_string();
        error::internal(format_args!(
            "node {node}: no preferred addresses found; known addresses: {known}"
        ))
    })?;
    let port = &status["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    let port = port.as_u64().and_then(|port| u16::try_from(port).ok());
    Ok(Place {
        node: node.to_owned(),
        address,
        port: port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT),
    })
}
