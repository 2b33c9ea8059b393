//! Unmount, look again, remove. Never the other way round: a folder that is removed through a mount
//! takes with it what belongs to others.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};

use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::VolumeError;
use swiftlet_sys::mount;

use crate::failed;
use crate::folders::Folders;

/// Removes all that the pod has on this node's disk, its logs only if asked to. What fails does not
/// keep the rest. The pod's folder goes last: by it the pod is found again.
pub(crate) fn pod(folders: &Folders, pod: &PodUid, logs: bool) -> Result<(), VolumeError> {
    let mut parts = Path::new(pod.as_str()).components();
    if !matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(_)), None)
    ) {
        return Err(failed("", &format!("\"{pod}\" is not the uid of a pod")));
    }
    let mut errors = Vec::new();
    match logs.then(|| folders.logs_of(pod)).transpose() {
        Ok(logs) => errors.extend(
            logs.iter()
                .flatten()
                .filter_map(|path| unmount_and_remove(path).err()),
        ),
        Err(error) => errors.push(format!("list {}: {error}", folders.logs.display())),
    }
    errors.extend(unmount_and_remove(&folders.pod(pod)).err());
    if errors.is_empty() {
        Ok(())
    } else {
        Err(failed("", &errors.join("; ")))
    }
}

fn unmount_and_remove(folder: &Path) -> Result<(), String> {
    let below = || mount::below(folder).map_err(|error| format!("read the mounts: {error}"));
    let mut errors = Vec::new();
    for point in below()? {
        if let Err(error) = mount::unmount(&point) {
            errors.push(format!("unmount {}: {error}", point.display()));
        }
    }
    if let Some(point) = below()?.first() {
        errors.push(format!(
            "{} is mounted still, nothing is removed",
            point.display()
        ));
        return Err(errors.join("; "));
    }
    let device = match fs::symlink_metadata(folder) {
        Ok(folder) => folder.dev(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", folder.display())),
    };
    remove(folder, device).map_err(|error| format!("remove {}: {error}", folder.display()))
}

/// Removes a folder that lies on this device with all below it; links are removed, not followed.
fn remove(folder: &Path, device: u64) -> io::Result<()> {
    if fs::symlink_metadata(folder)?.dev() != device {
        let words = format!("{} lies on another device", folder.display());
        return Err(io::Error::new(io::ErrorKind::CrossesDevices, words));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path(), device)?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_dir(folder)
}
