//! Identities. Each is a newtype, so that a sandbox is never passed where a container is meant.

use std::fmt;
use std::sync::Arc;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// `metadata.uid` of a pod: the only name of a pod that is never used twice.
    PodUid
}
id! {
    /// The runtime's id of a pod sandbox.
    SandboxId
}
id! {
    /// The runtime's id of a container, without the `containerd://` prefix that the API shows.
    ContainerId
}
id! {
    /// `name` of a container in its pod.
    ContainerName
}

/// A pod as people and the API name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`.
    pub uid: PodUid,
}

impl PodKey {
    /// The key of an API object; missing parts are empty, as the API server never leaves them out.
    pub fn of(pod: &k8s_openapi::api::core::v1::Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: PodUid::from(meta.uid.as_deref().unwrap_or_default()),
        }
    }
}

impl PodKey {
    /// Name of the folder of the pod's logs.
    /// Source: `BuildPodLogsDirectory` in `pkg/kubelet/kuberuntime/helpers.go` of Kubernetes.
    pub fn log_folder(&self) -> String {
        format!("{}_{}_{}", self.namespace, self.name, self.uid)
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}({})", self.namespace, self.name, self.uid)
    }
}
