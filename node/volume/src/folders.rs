//! Where things lie. Source: kubelet's layout (`pkg/kubelet/kubelet_getters.go`).

use std::io;
use std::path::PathBuf;

use swiftlet_model::ids::{PodKey, PodUid};

/// The two folders below which everything of the pods lies.
#[derive(Clone, Debug)]
pub struct Folders {
    /// Holds `pods/<uid>`.
    pub root: PathBuf,
    /// Holds `<namespace>_<name>_<uid>`.
    pub logs: PathBuf,
}

impl Folders {
    /// All of one pod but its logs.
    pub(crate) fn pod(&self, pod: &PodUid) -> PathBuf {
        self.root.join("pods").join(pod.as_str())
    }

    /// What the pod's containers see as `/etc/hosts`.
    pub(crate) fn hosts(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("etc-hosts")
    }

    /// What the pod's containers wrote as their last words.
    pub(crate) fn last_words(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("containers")
    }

    /// Below it lie the parts of volumes that containers mount.
    pub(crate) fn sub_paths(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volume-subpaths")
    }

    /// One volume. `plugin` is the folder of the volume's kind.
    pub(crate) fn volume(&self, pod: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.pod(pod).join("volumes").join(plugin).join(name)
    }

    /// The pod's logs: what [`swiftlet_model::runtime::SandboxConfig::log_directory`] names.
    pub(crate) fn pod_logs(&self, pod: &PodKey) -> PathBuf {
        self.logs.join(pod.log_folder())
    }

    /// The log folders of a pod of which only the uid is known.
    pub(crate) fn logs_of(&self, pod: &PodUid) -> io::Result<Vec<PathBuf>> {
        let ending = format!("_{pod}");
        let names = names(&self.logs)?
            .into_iter()
            .filter(|name| name.ends_with(&ending));
        Ok(names.map(|name| self.logs.join(name)).collect())
    }

    /// Names of the pods' log folders.
    pub(crate) fn log_names(&self) -> io::Result<Vec<String>> {
        names(&self.logs)
    }

    /// The pods that have a folder.
    pub(crate) fn pods(&self) -> io::Result<Vec<PodUid>> {
        Ok(names(&self.root.join("pods"))?
            .into_iter()
            .map(PodUid::from)
            .collect())
    }
}

/// Names of the folders in a folder; none if that is missing.
fn names(folder: &std::path::Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(entry.file_name().into_string());
        }
    }
    Ok(found)
}
