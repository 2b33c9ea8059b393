//! Folders, mounts and files of one pod.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use swiftlet_model::volumes::VolumeError;
use swiftlet_sys::{beneath, mount};

use crate::claim::Place;
use crate::files::Files;
use crate::folders::Folders;
use crate::order::{Data, Order};
use crate::payload::{Fetched, payload};
use crate::plan::{self, Kind, Medium, Plan};
use crate::pod_files::{HOSTS_MODE, one_part};
use crate::{atomic, failed, host_path, ownership};

/// Folder of the emptyDir volumes, as kubelet escapes its plugins' names.
pub(crate) const EMPTY_DIR: &str = "kubernetes.io~empty-dir";

/// Modes. Source: `pkg/volume/emptydir` and `SetVolumeOwnership` of Kubernetes.
const EMPTY_DIR_MODE: u32 = 0o777;
const GROUP_BITS: u32 = 0o2770;
const POD_MODE: u32 = 0o750;

/// Mode of an emptyDir whose owner and mode are still to be set. Nobody has a use for it, so that a
/// folder that has it was left unfinished by a crash.
const UNFINISHED_MODE: u32 = 0o1000;
/// Without the bits that a new folder may have from its parent.
const UNFINISHED_MASK: u32 = 0o1777;

/// Makes all; answers where each volume lies.
pub(crate) fn set_up(
    folders: &Folders,
    order: &Order,
) -> Result<BTreeMap<String, PathBuf>, VolumeError> {
    one_part(order.key.uid.as_str())?;
    base(folders, order).map_err(|(path, error)| {
        let cause = format!("make {}: {error}", path.display());
        failed("", &cause)
    })?;
    let mut places = BTreeMap::new();
    for (plan, data) in &order.volumes {
        let place = volume(folders, order, plan, data)?;
        places.insert(plan.name.clone(), place);
    }
    Ok(places)
}

/// Writes what changed in the volumes of files that exist.
pub(crate) fn refresh(folders: &Folders, order: &Order) -> Result<(), VolumeError> {
    for (plan, data) in &order.volumes {
        let (Kind::Files(files), Data::Files(fetched)) = (&plan.kind, data) else {
            continue;
        };
        let path = folders.volume(&order.key.uid, files.plugin, &plan.name);
        if path.is_dir() {
            write(&path, order, plan, files, fetched)?;
        }
    }
    Ok(())
}

/// The pod's folder, those of its logs, and its table of hosts, which gets its content when the
/// pod has its address: a container may be made before.
fn base(folders: &Folders, order: &Order) -> Result<(), (PathBuf, io::Error)> {
    let pod = folders.pod(&order.key.uid);
    make(&pod)?;
    fs::set_permissions(&pod, Permissions::from_mode(POD_MODE)).map_err(|it| (pod, it))?;
    let hosts = folders.hosts(&order.key.uid);
    let mut open = OpenOptions::new();
    let open = open.append(true).create(true).mode(HOSTS_MODE);
    open.open(&hosts).map_err(|it| (hosts, it))?;
    let logs = folders.pod_logs(&order.key);
    plan::container_names(&order.pod)
        .iter()
        .try_for_each(|container| make(&logs.join(container)))
}

fn make(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    fs::create_dir_all(path).map_err(|error| (path.to_path_buf(), error))
}

fn volume(
    folders: &Folders,
    order: &Order,
    plan: &Plan,
    data: &Data,
) -> Result<PathBuf, VolumeError> {
    let uid = &order.key.uid;
    let group = plan::fs_group(&order.pod);
    match (&plan.kind, data) {
        (Kind::HostPath { path, kind }, _) => host(plan, path, kind),
        (Kind::EmptyDir { medium, size_bytes }, _) => {
            let path = folders.volume(uid, EMPTY_DIR, &plan.name);
            let made = empty_dir(&path, medium, *size_bytes, group);
            made.map_err(|error| failed(&plan.name, &error))?;
            Ok(path)
        }
        (Kind::Files(files), Data::Files(fetched)) => {
            let path = folders.volume(uid, files.plugin, &plan.name);
            let made = files_folder(&path, order, files, group);
            made.map_err(|error| failed(&plan.name, &error))?;
            write(&path, order, plan, files, fetched)?;
            Ok(path)
        }
        (Kind::Claim { read_only, .. }, Data::Place(place)) => {
            claimed(order, plan, place, *read_only)
        }
        _ => Err(failed(&plan.name, &"its data was not fetched")),
    }
}

fn host(plan: &Plan, path: &str, kind: &str) -> Result<PathBuf, VolumeError> {
    host_path::check(path, kind).map_err(|why| failed(&plan.name, &why))
}

fn claimed(
    order: &Order,
    plan: &Plan,
    place: &Place,
    read_only: bool,
) -> Result<PathBuf, VolumeError> {
    match place {
        Place::HostPath { path, kind } => host(plan, path, kind),
        Place::Local { path } => {
            let place = host(plan, path, "")?;
            if !place.exists() {
                let cause = format!("path \"{path}\" does not exist");
                return Err(failed(&plan.name, &cause));
            }
            if let Some(group) = plan::fs_group(&order.pod).filter(|_| !read_only) {
                let given = ownership::give(&place, group, plan::only_on_mismatch(&order.pod));
                given.map_err(|error| failed(&plan.name, &format!("fsGroup: {error}")))?;
            }
            Ok(place)
        }
    }
}

/// What lies in memory is a mount with a limit; a limit on disk is eviction's business.
fn empty_dir(
    path: &Path,
    medium: &Medium,
    size_bytes: Option<u64>,
    group: Option<u32>,
) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    match DirBuilder::new().mode(UNFINISHED_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    if *medium != Medium::Disk && !beneath::is_mount_point(path)? {
        match medium {
            Medium::HugePages(size) => mount::hugetlbfs(path, size, UNFINISHED_MODE)?,
            _ => mount::tmpfs(path, size_bytes, UNFINISHED_MODE)?,
        }
    }
    // Set once: afterwards the folder is the pod's, which may have changed its mode. The mode comes
    // last: with it the folder is finished.
    if fs::metadata(path)?.permissions().mode() & UNFINISHED_MASK == UNFINISHED_MODE {
        own(path, group)?;
    }
    Ok(())
}

/// What is secret never touches a disk.
fn files_folder(path: &Path, order: &Order, files: &Files, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if files.in_memory && !beneath::is_mount_point(path)? {
        let spec = order.pod.spec.as_ref();
        let size = spec.and_then(|spec| plan::memory_max(spec, &order.amounts));
        mount::tmpfs(path, size, EMPTY_DIR_MODE)?;
    }
    own(path, group)
}

fn own(path: &Path, group: Option<u32>) -> io::Result<()> {
    let bits = group.map_or(0, |_| GROUP_BITS);
    if group.is_some() {
        std::os::unix::fs::chown(path, None, group)?;
    }
    fs::set_permissions(path, Permissions::from_mode(EMPTY_DIR_MODE | bits))
}

fn write(
    path: &Path,
    order: &Order,
    plan: &Plan,
    files: &Files,
    fetched: &[Fetched],
) -> Result<(), VolumeError> {
    let is_partial = fetched
        .iter()
        .any(|it| matches!(it, Fetched::Lacking { .. }));
    if is_partial && atomic::is_written(path) {
        // What an earlier run of this program wrote is better than less.
        return Ok(());
    }
    let payload = payload(&plan.name, files, fetched, &order.pod, &order.amounts)?;
    let written = atomic::write(path, &payload, plan::fs_group(&order.pod));
    written
        .map(drop)
        .map_err(|error| failed(&plan.name, &error))
}
