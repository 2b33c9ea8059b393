//! When the steps of a pod's start happened: one record a step, for the log and for measuring.

use jiff::Timestamp;
use swiftlet_model::ids::{ContainerName, PodKey};
use tokio::sync::mpsc;

/// A step of a pod's journey on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimelinePhase {
    /// The pod's object arrived.
    Received,
    /// The pod's cgroup is there: without it there is no sandbox.
    CgroupReady,
    /// The runtime was asked for the sandbox.
    SandboxAsked,
    /// The volumes are there.
    VolumesReady,
    /// A container's image is there.
    ImageReady,
    /// What a container is made with was put together before its sandbox was there.
    Configured,
    /// The sandbox is made, with its network.
    SandboxUp,
    /// The container's program runs, as the kernel says.
    ContainerStarted,
    /// The runtime answered that the container is started.
    StartAnswered,
    /// The container's program has ended, as the kernel says.
    ContainerDied,
    /// The control plane has stored a status.
    StatusPublished,
}

impl TimelinePhase {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::CgroupReady => "cgroup_ready",
            Self::SandboxAsked => "sandbox_asked",
            Self::VolumesReady => "volumes_ready",
            Self::ImageReady => "image_ready",
            Self::Configured => "configured",
            Self::SandboxUp => "sandbox_up",
            Self::ContainerStarted => "container_started",
            Self::StartAnswered => "start_answered",
            Self::ContainerDied => "container_died",
            Self::StatusPublished => "status_published",
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineRecord {
    /// The pod.
    pub pod: PodKey,
    /// The container, where one is meant.
    pub container: Option<ContainerName>,
    /// The step.
    pub phase: TimelinePhase,
    /// When, by the wall clock.
    pub at: Timestamp,
}

/// Where records go: to tracing (target `swiftlet::timeline`) and, if asked for, into a channel.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    records: Option<mpsc::Sender<TimelineRecord>>,
}

impl Timeline {
    /// Records go into `records` as well; when it is full they are dropped, the pods do not wait.
    pub fn to(records: mpsc::Sender<TimelineRecord>) -> Self {
        Self {
            records: Some(records),
        }
    }

    /// Records one step.
    pub(crate) fn record(&self, record: TimelineRecord) {
        tracing::debug!(
            target: "swiftlet::timeline",
            pod = format_args!("{}/{}", record.pod.namespace, record.pod.name),
            uid = record.pod.uid.as_str(),
            container = record.container.as_ref().map(ContainerName::as_str),
            phase = record.phase.as_str(),
            at_us = record.at.as_microsecond(),
        );
        if let Some(records) = &self.records {
            // A full channel loses records, as promised above.
            let _ = records.try_send(record);
        }
    }
}
