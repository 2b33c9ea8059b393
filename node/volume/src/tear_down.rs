//! Unmount, then remove. A folder that is removed through a mount takes with it what belongs to
//! others: so nothing is removed while something is mounted that cannot be unmounted, and the
//! kernel itself stops the removal at a mount that has come into being meanwhile.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::VolumeError;
use swiftlet_sys::{beneath, mount};

use crate::failed;
use crate::folders::Folders;
use crate::pod_files::one_part;

/// Removes all that the pod has on this node's disk; its logs, and the last words of its
/// containers, only if asked to; the logs are looked for unless it is known where they lie. What
/// fails does not keep the rest. The pod's folder goes last: by it the pod is found again.
pub(crate) fn pod(
    folders: &Folders,
    pod: &PodUid,
    logs: bool,
    known_logs: Option<PathBuf>,
) -> Result<(), VolumeError> {
    one_part(pod.as_str())?;
    let mut errors = Vec::new();
    let found = || known_logs.map_or_else(|| folders.logs_of(pod), |logs| Ok(vec![logs]));
    match logs.then(found).transpose() {
        Ok(logs) => errors.extend(logs.iter().flatten().filter_map(|path| remove(path).err())),
        Err(error) => errors.push(format!("list {}: {error}", folders.logs.display())),
    }
    let folder = folders.pod(pod);
    match unmount_all(&folder) {
        Err(error) => errors.push(error),
        Ok(()) if logs => errors.extend(remove(&folder).err()),
        Ok(()) => errors.extend(remove_all_but_last_words(folders, pod).err()),
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(failed("", &errors.join("; ")))
    }
}

fn unmount_all(folder: &Path) -> Result<(), String> {
    let points = mount::below(folder).map_err(|error| format!("read the mounts: {error}"))?;
    let errors = points.iter().filter_map(|point| {
        let error = mount::unmount(point).err()?;
        Some(format!(
            "unmount {}: {error}, it is mounted still and nothing is removed",
            point.display()
        ))
    });
    let errors: Vec<_> = errors.collect();
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.join("; "))
    }
}

fn remove(folder: &Path) -> Result<(), String> {
    let removed = beneath::remove_tree(folder);
    removed.map_err(|error| format!("remove {}: {error}", folder.display()))
}

fn remove_all_but_last_words(folders: &Folders, pod: &PodUid) -> Result<(), String> {
    let folder = folders.pod(pod);
    let kept = folders.last_words(pod);
    let said = |error: io::Error| format!("{}: {error}", folder.display());
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(said)?,
    };
    let mut is_empty = true;
    for entry in entries {
        let entry = entry.map_err(said)?;
        if entry.path() == kept {
            is_empty = false;
        } else if entry.file_type().map_err(said)?.is_dir() {
            remove(&entry.path())?;
        } else {
            fs::remove_file(entry.path()).map_err(said)?;
        }
    }
    if is_empty { remove(&folder) } else { Ok(()) }
}
