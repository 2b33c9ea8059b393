//! Where desired pods come from, and the marks that pods of other sources than the API bear.
//!
//! The words are Kubernetes' own (`pkg/kubelet/types/pod_update.go`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

/// Lists of sources that wait for the kubelet: a newer list replaces an older one, so a few do.
pub const SOURCES_QUEUE_MAX: usize = 16;

/// Where a pod comes from: `file`, `http`; `api` for all others.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// The hash that is a static pod's uid.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";
/// When the node saw a static pod first.
pub const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// The hash of the static pod that a pod in the API mirrors.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";

/// Where a pod comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// The API.
    ControlPlane,
    /// Files in a folder of the node.
    File,
    /// A document that is fetched again and again.
    Http,
}

impl Source {
    /// The value of [`CONFIG_SOURCE`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "api",
            Self::File => "file",
            Self::Http => "http",
        }
    }
}

/// All pods of a source: what is not listed does not exist there.
#[derive(Clone, Debug)]
pub struct SourcePods {
    /// The source.
    pub source: Source,
    /// Its pods.
    pub pods: Vec<Arc<Pod>>,
}

/// Where the lists of the sources other than the control plane arrive.
pub type SourceReceiver = mpsc::Receiver<SourcePods>;

/// A pod's annotation.
pub fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .and_then(|all| all.get(name))
        .map(String::as_str)
}

/// Whether a pod comes from a file or a document, and not from the API.
pub fn is_static(pod: &Pod) -> bool {
    annotation(pod, CONFIG_SOURCE).is_some_and(|source| source != Source::ControlPlane.as_str())
        && !is_mirror(pod)
}

/// Whether a pod only shows a static pod in the API.
pub fn is_mirror(pod: &Pod) -> bool {
    annotation(pod, CONFIG_MIRROR).is_some()
}
