//! Who may do what.
//!
//! Four kinds of users exist: administrators (`system:masters`), parts of the control plane
//! (`system:kube-…`), node agents (`system:nodes`), which read what they need here and write
//! through the node link, and everybody else who is known, service accounts for instance: they may
//! ask who they are and what is served, and nothing more.

use swiftlet_client::api::{ApiError, UserInfo};

use crate::error;
use crate::route::{Target, Verb};

/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// Asks whether a user may use a verb on a target.
pub(crate) fn authorize(user: &UserInfo, verb: Verb, target: &Target) -> Result<(), ApiError> {
    let question = Question {
        verb: verb.as_str(),
        group: target.resource.name.group,
        resource: target.resource.name.plural,
        subresource: target.subresource,
        name: &target.name,
    };
    if question.is_allowed(user) {
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

/// Asks whether a user may read a path that is no resource.
pub(crate) fn authorize_path(user: &UserInfo, path: &str) -> Result<(), ApiError> {
    if may_path(user, "get", path) {
        return Ok(());
    }
    Err(error::forbidden_path(format!(
        "forbidden: User \"{}\" cannot get path \"{path}\"",
        user.name
    )))
}

/// Whether a user may read a path that is no resource. Discovery and documents are for all users
/// (role `system:discovery`), the keys of tokens for service accounts
/// (`system:service-account-issuer-discovery`).
pub(crate) fn may_path(user: &UserInfo, verb: &str, path: &str) -> bool {
    let is_issuer = path.starts_with("/openid/") || path.starts_with("/.well-known/");
    is_privileged(user)
        || (verb == "get" && (!is_issuer || user.groups.iter().any(|one| one == SERVICE_ACCOUNTS)))
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

/// Something that a user wants to do with a resource.
pub(crate) struct Question<'a> {
    /// `get`.
    pub(crate) verb: &'a str,
    /// Empty for the core group.
    pub(crate) group: &'a str,
    /// The plural name.
    pub(crate) resource: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// Empty for all.
    pub(crate) name: &'a str,
}

impl Question<'_> {
    /// Whether the user may.
    pub(crate) fn is_allowed(&self, user: &UserInfo) -> bool {
        is_privileged(user) || self.is_for_all() || self.is_for_node(user)
    }

    /// What every known user may (role `system:basic-user`).
    fn is_for_all(&self) -> bool {
        matches!(
            (self.group, self.resource, self.verb),
            ("authentication.k8s.io", "selfsubjectreviews", "create")
                | ("authorization.k8s.io", "selfsubjectaccessreviews", "create")
        )
    }

    fn is_for_node(&self, user: &UserInfo) -> bool {
        let Some(node) = user.node_name() else {
            return false;
        };
        if !matches!(self.subresource, "" | "status") {
            return false;
        }
        match (self.group, self.resource, self.verb) {
            // What its pods refer to (secrets, configmaps) comes through the link, checked per pod.
            // Its own server asks who its clients are, and what they may.
            ("", "pods" | "nodes", "get" | "list" | "watch")
            | ("authentication.k8s.io", "tokenreviews", "create")
            | ("authorization.k8s.io", "subjectaccessreviews", "create") => true,
            ("coordination.k8s.io", "leases", "get") => self.name == node,
            _ => false,
        }
    }
}
