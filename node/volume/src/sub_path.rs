//! Parts of volumes, bound to places that the pod cannot change.
//!
//! ```text
//! <root>/pods/<uid>/volume-subpaths/<volume>/<container>/<index>
//! ```
//!
//! The kernel finds the part without leaving the volume, and what it found is bound by its handle:
//! whatever the pod makes of the path afterwards, the container gets what was looked at. Source of
//! the layout: `pkg/volume/util/subpath` of Kubernetes.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{SubPath, VolumeError};
use swiftlet_sys::beneath::{self, Found};
use swiftlet_sys::mount;

use crate::folders::Folders;
use crate::pod_files::one_part;

/// Binds the part; answers where.
pub(crate) fn bind(
    folders: &Folders,
    pod: &PodUid,
    order: &SubPath,
) -> Result<PathBuf, VolumeError> {
    check(&order.sub_path).map_err(VolumeError::BadSubPath)?;
    let names = [pod.as_str(), &order.volume, &order.container];
    for name in names {
        one_part(name)?;
    }
    let folder = folders.sub_paths(pod).join(&order.volume);
    let target = folder.join(&order.container).join(order.index.to_string());
    match prepare(order, &target) {
        Ok(()) => Ok(target),
        Err(error) => Err(VolumeError::SubPath {
            volume: order.volume.clone(),
            container: order.container.clone(),
            cause: error.to_string(),
        }),
    }
}

/// In Kubernetes' words (`makeMounts`).
fn check(part: &str) -> Result<(), String> {
    let path = Path::new(part);
    if path.is_absolute() {
        return Err(format!(
            "error SubPath `{part}` must not be an absolute path"
        ));
    }
    if path.components().any(|it| it == Component::ParentDir) {
        return Err(format!(
            "unable to provision SubPath `{part}`: must not contain '..'"
        ));
    }
    Ok(())
}

fn prepare(order: &SubPath, target: &Path) -> io::Result<()> {
    let mode = fs::metadata(&order.path)?.mode() & 0o7777;
    let found = beneath::find_or_make(&order.path, Path::new(&order.sub_path), mode)?;
    if is_bound(target, &found)? {
        return Ok(());
    }
    make_target(target, found.facts.is_folder)?;
    mount::bind(&found.path(), target)
}

/// Whether the same is bound there already; something else is unbound.
fn is_bound(target: &Path, found: &Found) -> io::Result<bool> {
    match beneath::is_mount_point(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Ok(true) if beneath::find(target)?.facts.identity == found.facts.identity => Ok(true),
        Ok(true) => mount::unmount(target).map(|()| false),
        other => other,
    }
}

/// A folder is bound to a folder, all else to a file.
fn make_target(target: &Path, is_folder: bool) -> io::Result<()> {
    fs::create_dir_all(target.parent().unwrap_or(target))?;
    match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() == is_folder => return Ok(()),
        Ok(there) if there.is_dir() => fs::remove_dir(target)?,
        Ok(_) => fs::remove_file(target)?,
        Err(_) => {}
    }
    if is_folder {
        fs::create_dir(target)
    } else {
        let mut open = OpenOptions::new();
        let open = open.write(true).create_new(true).mode(0o600);
        open.open(target).map(drop)
    }
}
