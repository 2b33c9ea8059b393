//! Files that change all at once.
//!
//! ```text
//! <volume>/..2026_11_30_09_00_00.0123456789/key    the files
//! <volume>/..data → ..2026_11_30_09_00_00.…        swapped by one rename
//! <volume>/key → ..data/key                        what the pod opens
//! ```
//!
//! The steps and names are those of Kubernetes' atomic writer (`pkg/volume/util/atomic_writer.go`),
//! which programs in pods watch for. A crash between two steps leaves folders that nothing points
//! to; the next write removes them.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink,
};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::payload::{File, Payload};

/// The link to the current files.
const DATA: &str = "..data";
/// The link that takes its place.
const NEW_DATA: &str = "..data_tmp";
/// Start of the names that only the writer makes.
const OWN_PREFIX: &str = "..";

/// Mode of the folders in the volume.
const FOLDER_MODE: u32 = 0o755;

/// What a group that owns the volume may do. Source: `SetVolumeOwnership` for read-only volumes.
const GROUP_FILE_BITS: u32 = 0o440;
const GROUP_FOLDER_BITS: u32 = 0o2550;

/// Whether the volume has content.
pub(crate) fn is_written(volume: &Path) -> bool {
    volume.join(DATA).exists()
}

/// Makes `payload` the content of `volume`. `false`: it was already.
pub(crate) fn write(volume: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let current = current(volume)?;
    if current
        .as_deref()
        .is_some_and(|folder| is_same(&volume.join(folder), payload, group))
    {
        return Ok(false);
    }
    let folder = format!(
        "{OWN_PREFIX}{}",
        Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%N")
    );
    let path = volume.join(&folder);
    make_folder(&path, group)?;
    for (name, file) in payload {
        write_file(&path, name, file, group)?;
    }
    // Before the swap a new name leads nowhere; after it, to the new file.
    for name in top_names(payload) {
        link(volume, &format!("{DATA}/{name}"), name)?;
    }
    let new = volume.join(NEW_DATA);
    remove_if_there(&new)?;
    symlink(&folder, &new)?;
    fs::rename(&new, volume.join(DATA))?;
    sweep(volume, &folder, &top_names(payload))?;
    Ok(true)
}

/// The folder that `..data` names.
fn current(volume: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(volume.join(DATA)) {
        Ok(target) => Ok(Some(target)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether the folder holds exactly these files. What cannot be read is not the same.
fn is_same(folder: &Path, payload: &Payload, group: Option<u32>) -> bool {
    let Ok(found) = files_below(folder, Path::new("")) else {
        return false;
    };
    let wanted: BTreeSet<_> = payload.keys().cloned().collect();
    let same = |name: &String, file: &File| {
        let path = folder.join(name);
        let Ok(found) = fs::metadata(&path) else {
            return false;
        };
        found.mode() & 0o7777 == file_mode(file, group)
            && found.uid() == file.owner.unwrap_or(0)
            && fs::read(&path).ok().as_ref() == Some(&file.content)
    };
    found == wanted && payload.iter().all(|(name, file)| same(name, file))
}

fn files_below(folder: &Path, name: &Path) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder.join(name))? {
        let entry = entry?;
        let name = name.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.append(&mut files_below(folder, &name)?);
        } else {
            found.insert(name.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

fn write_file(folder: &Path, name: &str, file: &File, group: Option<u32>) -> io::Result<()> {
    let path = folder.join(name);
    let mut parents: Vec<_> = Path::new(name)
        .ancestors()
        .skip(1)
        .filter(|it| !it.as_os_str().is_empty())
        .collect();
    parents.reverse();
    for parent in parents {
        let parent = folder.join(parent);
        if !parent.is_dir() {
            make_folder(&parent, group)?;
        }
    }
    // Nobody reads it before `..data` names it, so the final mode may come last.
    let mut open = fs::OpenOptions::new();
    open.write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?
        .write_all(&file.content)?;
    own(&path, file_mode(file, group), file.owner, group)
}

fn file_mode(file: &File, group: Option<u32>) -> u32 {
    file.mode | group.map_or(0, |_| GROUP_FILE_BITS)
}

fn make_folder(path: &Path, group: Option<u32>) -> io::Result<()> {
    fs::DirBuilder::new().mode(FOLDER_MODE).create(path)?;
    own(
        path,
        FOLDER_MODE | group.map_or(0, |_| GROUP_FOLDER_BITS),
        None,
        group,
    )
}

/// The mode last: a change of the owner clears bits of it, and the umask took part in the creation.
fn own(path: &Path, mode: u32, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    if owner.is_some() || group.is_some() {
        std::os::unix::fs::lchown(path, owner, group)?;
    }
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// First parts of the paths: these are what the pod sees beside the writer's own names.
fn top_names(payload: &Payload) -> BTreeSet<&str> {
    payload
        .keys()
        .filter_map(|path| path.split('/').next())
        .collect()
}

fn link(volume: &Path, target: &str, name: &str) -> io::Result<()> {
    match symlink(target, volume.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes names that show nothing any more, and all folders of the writer but the current one.
fn sweep(volume: &Path, current: &str, shown: &BTreeSet<&str>) -> io::Result<()> {
    for entry in fs::read_dir(volume)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type()?.is_dir();
        if name.starts_with(OWN_PREFIX) {
            if is_folder && name != current {
                fs::remove_dir_all(entry.path())?;
            }
        } else if !is_folder && !shown.contains(name.as_str()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File {
            content: text.as_bytes().to_vec(),
            mode: 0o640,
            owner: None,
        };
        files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), file(text)))
            .collect()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_seen_through_data_and_change_by_one_rename() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        assert!(write(volume, &payload(&[("a", "1"), ("deep/b", "2")]), None).unwrap());
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "1");
        assert_eq!(
            fs::read_link(volume.join("a")).unwrap(),
            Path::new("..data/a")
        );
        assert_eq!(fs::read_to_string(volume.join("deep/b")).unwrap(), "2");
        assert_eq!(
            fs::metadata(volume.join("a")).unwrap().mode() & 0o7777,
            0o640
        );
        let first = fs::read_link(volume.join(DATA)).unwrap();

        assert!(write(volume, &payload(&[("a", "3"), ("c", "4")]), None).unwrap());
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert!(!volume.join(&first).exists());
        let second = fs::read_link(volume.join(DATA)).unwrap();
        let second = second.to_string_lossy().into_owned();
        assert_eq!(names(volume), [second.as_str(), DATA, "a", "c"]);
    }

    #[test]
    fn what_did_not_change_is_not_written_again() {
        let volume = tempfile::tempdir().unwrap();
        let files = payload(&[("a", "1")]);
        assert!(write(volume.path(), &files, Some(7)).unwrap());
        let before = fs::read_link(volume.path().join(DATA)).unwrap();
        assert!(!write(volume.path(), &files, Some(7)).unwrap());
        assert_eq!(fs::read_link(volume.path().join(DATA)).unwrap(), before);
    }

    #[test]
    fn what_a_crash_left_is_swept_by_the_next_write() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path();
        fs::create_dir(volume.join("..2020_01_01_00_00_00.1")).unwrap();
        symlink("..2020_01_01_00_00_00.1", volume.join(NEW_DATA)).unwrap();
        write(volume, &payload(&[("a", "1")]), None).unwrap();
        assert_eq!(names(volume).len(), 3);
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "1");
    }

    #[test]
    fn the_pods_group_may_read() {
        let volume = tempfile::tempdir().unwrap();
        let mut files = payload(&[("a", "1")]);
        files.get_mut("a").unwrap().mode = 0o400;
        write(volume.path(), &files, Some(2000)).unwrap();
        let meta = fs::metadata(volume.path().join("a")).unwrap();
        assert_eq!((meta.gid(), meta.mode() & 0o7777), (2000, 0o440));
    }

    #[test]
    fn an_empty_volume_has_data_all_the_same() {
        let volume = tempfile::tempdir().unwrap();
        write(volume.path(), &Payload::new(), None).unwrap();
        assert!(volume.path().join(DATA).is_dir());
    }
}
