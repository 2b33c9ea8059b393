//! Who may do what.
//!
//! Three kinds of users exist: administrators (`system:masters`), parts of the control plane
//! (`system:kube-…`), and node agents (`system:nodes`), which read what they need here and write
//! through the node link. Everybody else is refused.

use swiftlet_client::api::{ApiError, UserInfo};

use crate::error;
use crate::route::{Target, Verb};

/// Asks whether a user may use a verb on a target.
pub(crate) fn authorize(user: &UserInfo, verb: Verb, target: &Target) -> Result<(), ApiError> {
    if is_privileged(user) || may_node(user, verb, target) {
        return Ok(());
    }
    let scope = if target.namespace.is_empty() {
        "at the cluster scope".to_string()
    } else {
        format!("in the namespace \"{}\"", target.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
        user.name,
        verb.as_str(),
        target.qualified(),
        target.resource.name.group,
    );
    Err(error::forbidden(target.resource, &target.name, &why))
}

/// Asks whether a user may read a path that is no resource (discovery, documents). All
/// authenticated users may.
pub(crate) fn authorize_path(user: Option<&UserInfo>) -> Result<(), ApiError> {
    user.map(|_| ()).ok_or_else(error::unauthorized)
}

/// Asks whether a user may use a mounted service.
pub(crate) fn authorize_mount(user: &UserInfo, path: &str) -> Result<(), ApiError> {
    if is_privileged(user) || user.node_name().is_some() {
        return Ok(());
    }
    Err(error::forbidden_path(format!(
        "forbidden: User \"{}\" cannot post path \"{path}\"",
        user.name
    )))
}

fn is_privileged(user: &UserInfo) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
        || user.name.starts_with("system:kube-")
}

fn may_node(user: &UserInfo, verb: Verb, target: &Target) -> bool {
    let Some(node) = user.node_name() else {
        return false;
    };
    let group = target.resource.name.group;
    match (group, target.resource.name.plural, verb) {
        // What its pods refer to (secrets, configmaps) comes through the link, checked per pod.
        ("", "pods" | "nodes", Verb::Get | Verb::List | Verb::Watch) => true,
        ("coordination.k8s.io", "leases", Verb::Get) => target.name == node,
        _ => false,
    }
}
