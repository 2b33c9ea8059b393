//! Folders, mounts and files of one pod.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use swiftlet_model::control_plane::{RefKind, ReferencedData};
use swiftlet_model::ids::PodKey;
use swiftlet_model::volumes::VolumeError;
use swiftlet_sys::mount;

use crate::folders::Folders;
use crate::payload::payload;
use crate::plan::{Files, Kind, Plan};
use crate::{atomic, failed, host_path};

/// Folders of the volumes' kinds, as kubelet escapes its plugins' names.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
const CONFIG_MAP: &str = "kubernetes.io~configmap";
const SECRET: &str = "kubernetes.io~secret";

/// Modes. Source: `pkg/volume/emptydir` and `SetVolumeOwnership` of Kubernetes.
const EMPTY_DIR_MODE: u32 = 0o777;
const GROUP_BITS: u32 = 0o2770;
const POD_MODE: u32 = 0o750;

/// Mode of an emptyDir whose owner and mode are still to be set. Nobody has a use for it, so that a
/// folder that has it was left unfinished by a crash.
const UNFINISHED_MODE: u32 = 0o1000;
/// Without the bits that a new folder may have from its parent.
const UNFINISHED_MASK: u32 = 0o1777;

/// Everything that is needed to make a pod's folders, already fetched.
pub(crate) struct Order {
    pub(crate) key: PodKey,
    pub(crate) containers: Vec<String>,
    pub(crate) fs_group: Option<u32>,
    pub(crate) volumes: Vec<(Plan, Option<ReferencedData>)>,
}

/// Makes all; answers where each volume lies.
pub(crate) fn set_up(
    folders: &Folders,
    order: &Order,
) -> Result<BTreeMap<String, PathBuf>, VolumeError> {
    base(folders, order)
        .map_err(|(path, error)| failed("", &format!("mkdir {}: {error}", path.display())))?;
    let mut places = BTreeMap::new();
    for (plan, data) in &order.volumes {
        let place = volume(folders, order, plan, data.as_ref())?;
        places.insert(plan.name.clone(), place);
    }
    Ok(places)
}

/// Writes what changed in ConfigMap and Secret volumes that exist.
pub(crate) fn refresh(folders: &Folders, order: &Order) -> Result<(), VolumeError> {
    for (plan, data) in &order.volumes {
        let Kind::Files(files) = &plan.kind else {
            continue;
        };
        let path = folders.volume(&order.key.uid, plugin(files), &plan.name);
        if path.is_dir() {
            write(&path, order, plan, files, data.as_ref())?;
        }
    }
    Ok(())
}

/// The pod's folder and those of its logs.
fn base(folders: &Folders, order: &Order) -> Result<(), (PathBuf, io::Error)> {
    let pod = folders.pod(&order.key.uid);
    make(&pod)?;
    fs::set_permissions(&pod, Permissions::from_mode(POD_MODE)).map_err(|it| (pod, it))?;
    let logs = folders.pod_logs(&order.key);
    order
        .containers
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
    data: Option<&ReferencedData>,
) -> Result<PathBuf, VolumeError> {
    let uid = &order.key.uid;
    match &plan.kind {
        Kind::HostPath { path, kind } => {
            host_path::check(path, kind).map_err(|why| failed(&plan.name, &why))
        }
        Kind::EmptyDir { memory, size_bytes } => {
            let path = folders.volume(uid, EMPTY_DIR, &plan.name);
            let made = empty_dir(&path, *memory, *size_bytes, order.fs_group);
            made.map_err(|error| failed(&plan.name, &error))?;
            Ok(path)
        }
        Kind::Files(files) => {
            let path = folders.volume(uid, plugin(files), &plan.name);
            let made = files_folder(&path, files);
            made.map_err(|error| failed(&plan.name, &error))?;
            write(&path, order, plan, files, data)?;
            Ok(path)
        }
    }
}

/// What lies in memory is a mount with a limit; a limit on disk is eviction's business.
fn empty_dir(
    path: &Path,
    memory: bool,
    size_bytes: Option<u64>,
    group: Option<u32>,
) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    match DirBuilder::new().mode(UNFINISHED_MODE).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    if memory && !mount::is_mounted(path)? {
        mount::tmpfs(path, size_bytes, UNFINISHED_MODE)?;
    }
    // Set once: afterwards the folder is the pod's, which may have changed its mode. The mode comes
    // last: with it the folder is finished.
    if fs::metadata(path)?.permissions().mode() & UNFINISHED_MASK == UNFINISHED_MODE {
        let bits = group.map_or(0, |_| GROUP_BITS);
        if group.is_some() {
            std::os::unix::fs::chown(path, None, group)?;
        }
        fs::set_permissions(path, Permissions::from_mode(EMPTY_DIR_MODE | bits))?;
    }
    Ok(())
}

/// Secrets never touch a disk.
fn files_folder(path: &Path, files: &Files) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if files.object.kind == RefKind::Secret && !mount::is_mounted(path)? {
        mount::tmpfs(path, None, EMPTY_DIR_MODE)?;
    }
    fs::set_permissions(path, Permissions::from_mode(EMPTY_DIR_MODE))
}

fn write(
    path: &Path,
    order: &Order,
    plan: &Plan,
    files: &Files,
    data: Option<&ReferencedData>,
) -> Result<(), VolumeError> {
    let payload = payload(plan, files, data)?;
    let written = atomic::write(path, &payload, order.fs_group);
    written
        .map(drop)
        .map_err(|error| failed(&plan.name, &error))
}

fn plugin(files: &Files) -> &'static str {
    match files.object.kind {
        RefKind::Secret => SECRET,
        _ => CONFIG_MAP,
    }
}
