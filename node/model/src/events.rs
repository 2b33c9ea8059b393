//! Reasons of Events, in the words of Kubernetes (`pkg/kubelet/events/event.go`).

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// All is as it should be.
    Normal,
    /// Someone should look.
    Warning,
}

impl EventKind {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A container was created.
pub const CREATED: &str = "Created";
/// A container was started.
pub const STARTED: &str = "Started";
/// A container could not be created or started.
pub const FAILED: &str = "Failed";
/// A container is being stopped.
pub const KILLING: &str = "Killing";
/// A restart or a pull waits.
pub const BACK_OFF: &str = "BackOff";
/// An image is being pulled.
pub const PULLING: &str = "Pulling";
/// An image is there.
pub const PULLED: &str = "Pulled";
/// An image is not there and must not be pulled.
pub const ERR_IMAGE_NEVER_PULL: &str = "ErrImageNeverPull";
/// The sandbox could not be made.
pub const FAILED_CREATE_POD_SANDBOX: &str = "FailedCreatePodSandBox";
/// The sandbox died and is made again.
pub const SANDBOX_CHANGED: &str = "SandboxChanged";
/// A volume could not be made.
pub const FAILED_MOUNT: &str = "FailedMount";
/// The machine had no memory left, and the kernel killed a process
/// (`pkg/kubelet/oom/oom_watcher_linux.go`).
pub const SYSTEM_OOM: &str = "SystemOOM";
/// The node agent started.
pub const STARTING: &str = "Starting";
/// The node is ready.
pub const NODE_READY: &str = "NodeReady";
/// An image's name cannot be read, or the runtime cannot tell whether it has the image.
pub const INSPECT_FAILED: &str = "InspectFailed";
/// A Secret of `spec.imagePullSecrets` is not there, or holds no credentials.
pub const FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET: &str = "FailedToRetrieveImagePullSecret";
/// The file system of images says that it has no size.
pub const INVALID_DISK_CAPACITY: &str = "InvalidDiskCapacity";
/// Unused images were removed, but not enough of them.
pub const FREE_DISK_SPACE_FAILED: &str = "FreeDiskSpaceFailed";
/// Unused images could not be removed several times in a row.
pub const IMAGE_GC_FAILED: &str = "ImageGCFailed";
/// A container's postStart hook has failed.
pub const FAILED_POST_START_HOOK: &str = "FailedPostStartHook";
/// A container's preStop hook has failed.
pub const FAILED_PRE_STOP_HOOK: &str = "FailedPreStopHook";
/// A pod was active longer than it may; the reason in its status as well.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
