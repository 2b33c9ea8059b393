//! How the lists of the served kinds merge (`patchStrategy` and `patchMergeKey` of the API types).

/// How a strategic patch merges into a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListRule {
    /// The patch's list takes the old one's place.
    Atomic,
    /// Values of the patch are added, each once.
    Set,
    /// Elements are objects; those with the same value of this member merge.
    Map(&'static str),
}

/// The rule of the list `field` in an object that is the value (or an element) of `parent`.
///
/// In the served kinds field and parent are enough to tell lists apart.
pub(super) fn list_rule(parent: &str, field: &str) -> ListRule {
    match (parent, field) {
        ("metadata", "finalizers") | ("spec", "podCIDRs") => ListRule::Set,
        ("metadata", "ownerReferences") => ListRule::Map("uid"),
        (
            "spec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets"
            | "resourceClaims"
            | "schedulingGates",
        )
        | ("status", "resourceClaimStatuses")
        // ServiceAccounts: the list is a member of the object itself.
        | ("", "secrets" | "imagePullSecrets") => ListRule::Map("name"),
        // Services: pods have no ports of their own.
        ("spec", "ports") => ListRule::Map("port"),
        ("spec", "topologySpreadConstraints") => ListRule::Map("topologyKey"),
        ("spec", "taints") => ListRule::Map("key"),
        ("containers" | "initContainers" | "ephemeralContainers", field) => match field {
            "env" => ListRule::Map("name"),
            "ports" => ListRule::Map("containerPort"),
            "volumeMounts" => ListRule::Map("mountPath"),
            "volumeDevices" => ListRule::Map("devicePath"),
            _ => ListRule::Atomic,
        },
        ("status", "conditions" | "addresses") => ListRule::Map("type"),
        ("spec", "hostAliases") | ("status", "podIPs" | "hostIPs") => ListRule::Map("ip"),
        _ => ListRule::Atomic,
    }
}
