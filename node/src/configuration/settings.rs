//! What a configuration decides beyond the command line.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use swiftlet_kubelet::{Limits, PodSettings, ResourceOptions};
use swiftlet_source::{FILE_CHECK_PERIOD, HTTP_CHECK_PERIOD};

/// Everything that has no option on the command line, or more to it than that.
#[derive(Default, Clone, Debug)]
pub(crate) struct Settings {
    /// Limits of the kubelet.
    pub(crate) limits: Limits,
    /// How it treats pods.
    pub(crate) pods: PodSettings,
    /// How it shares out the node.
    pub(crate) resources: ResourceOptions,
    /// Pods that come from no API.
    pub(crate) static_pods: StaticPods,
    /// `registerWithTaints`.
    pub(crate) taints: Vec<Taint>,
    /// `enableServer` is false.
    pub(crate) server_off: bool,
    /// `failSwapOn`, where it is said.
    pub(crate) fail_swap_on: bool,
    /// `failCgroupV1`.
    pub(crate) fail_cgroup_v1: bool,
}

/// Where static pods come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StaticPods {
    /// `staticPodPath`.
    pub(crate) path: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub(crate) file_period: Duration,
    /// `staticPodURL`.
    pub(crate) url: Option<String>,
    /// `staticPodURLHeader`.
    pub(crate) headers: Vec<(String, String)>,
    /// `httpCheckFrequency`.
    pub(crate) http_period: Duration,
}

impl Default for StaticPods {
    fn default() -> Self {
        Self {
            path: None,
            file_period: FILE_CHECK_PERIOD,
            url: None,
            headers: Vec::new(),
            http_period: HTTP_CHECK_PERIOD,
        }
    }
}
