//! A folder whose mounts are passed on: what is mounted below it is seen by every mount namespace
//! that has a share of it, containers' among them.
//!
//! The kernel passes mounts on between the mounts of one peer group (mount_namespaces(7)), so the
//! folder has to lie on a mount that is shared. Where it does not, it becomes a mount of its own,
//! bound on itself (Kubernetes: `DoMakeRShared` in `pkg/volume/util/hostutil`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};

use crate::mount::{bind, unescape, unmount};

/// How a folder became one whose mounts are passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// It was one before.
    Already,
    /// It is one now.
    Made,
    /// It is none: the mounts below it would be hidden by a new one. It has to be tried again when
    /// they have gone.
    Busy,
}

/// A line of the table of mounts, as far as anybody asks. Source: proc(5).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    id: u64,
    parent: u64,
    device: String,
    /// The folder of its file system that is shown.
    root: PathBuf,
    point: PathBuf,
    shared: bool,
}

/// What is missing for a folder to be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Nothing,
    /// It is a mount; that is to be shared.
    Share,
    /// It is to be bound on itself first.
    Bind,
    /// What is mounted below it is in the way.
    Free,
}

/// Makes sure that what is mounted below a folder is passed on.
///
/// # Errors
/// The folder is not there, or the kernel refuses the mount.
pub fn share(folder: &Path) -> io::Result<Sharing> {
    let folder = fs::canonicalize(folder)?;
    match missing(&table()?, &folder) {
        Missing::Nothing => return Ok(Sharing::Already),
        Missing::Free => return Ok(Sharing::Busy),
        Missing::Bind => bind(&folder, &folder)?,
        // A program that ended between the two steps has left it so.
        Missing::Share => {}
    }
    let none = None::<&str>;
    mount(
        none,
        &folder,
        none,
        MsFlags::MS_SHARED | MsFlags::MS_REC,
        none,
    )?;
    Ok(Sharing::Made)
}

/// Takes away what [`share`] has mounted: a mount of a folder on itself. Other mounts stay.
///
/// # Errors
/// The kernel refuses: something is in use there.
pub fn unshare(folder: &Path) -> io::Result<()> {
    let Ok(folder) = fs::canonicalize(folder) else {
        return Ok(());
    };
    while is_bound_on_itself(&table()?, &folder) {
        unmount(&folder)?;
    }
    Ok(())
}

fn table() -> io::Result<Vec<Line>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table
        .split(|byte| *byte == b'\n')
        .filter_map(line)
        .collect())
}

fn line(bytes: &[u8]) -> Option<Line> {
    let fields: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
    let text = |at: usize| {
        fields
            .get(at)
            .and_then(|field| std::str::from_utf8(field).ok())
    };
    let options = fields.get(6..)?;
    let mut tags = options.iter().take_while(|field| **field != b"-");
    Some(Line {
        id: text(0)?.parse().ok()?,
        parent: text(1)?.parse().ok()?,
        device: text(2)?.to_owned(),
        root: PathBuf::from(unescape(fields.get(3)?)),
        point: PathBuf::from(unescape(fields.get(4)?)),
        shared: tags.any(|tag| tag.starts_with(b"shared:")),
    })
}

/// The mount that holds the folder: the nearest above it, and of several at one place the last.
fn holder<'a>(table: &'a [Line], folder: &Path) -> Option<&'a Line> {
    let above = table.iter().filter(|line| folder.starts_with(&line.point));
    above.max_by_key(|line| line.point.components().count())
}

fn missing(table: &[Line], folder: &Path) -> Missing {
    let Some(holder) = holder(table, folder) else {
        return Missing::Bind;
    };
    let below = |line: &Line| line.point != *folder && line.point.starts_with(folder);
    if holder.shared {
        Missing::Nothing
    } else if holder.point == *folder {
        Missing::Share
    } else if table.iter().any(below) {
        Missing::Free
    } else {
        Missing::Bind
    }
}

fn is_bound_on_itself(table: &[Line], folder: &Path) -> bool {
    let Some(top) = holder(table, folder).filter(|line| line.point == *folder) else {
        return false;
    };
    let parent = table.iter().find(|line| line.id == top.parent);
    parent.is_some_and(|parent| parent.device == top.device && shows(parent, folder, &top.root))
}

/// Whether the mount shows that folder of its file system there. An administrator may have bound
/// another one of the same disk.
fn shows(mount: &Line, place: &Path, root: &Path) -> bool {
    let below = place.strip_prefix(&mount.point);
    below.is_ok_and(|below| mount.root.join(below) == root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{is_mounted, tmpfs};

    fn lines(text: &str) -> Vec<Line> {
        text.lines()
            .filter_map(|one| line(one.as_bytes()))
            .collect()
    }

    #[test]
    fn what_is_missing_is_read_from_the_nearest_mount_above() {
        let of = |text: &str| missing(&lines(text), Path::new("/var/lib/node"));
        let root = "21 1 8:1 / / rw - ext4 /dev/sda rw\n";
        assert_eq!(of(root), Missing::Bind);
        let shared = "21 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n";
        assert_eq!(of(shared), Missing::Nothing);
        let disk = format!("{shared}30 21 8:2 / /var/lib rw master:1 - ext4 /dev/sdb rw\n");
        assert_eq!(of(&disk), Missing::Bind);
        let own = "40 21 8:1 /var/lib/node /var/lib/node rw - ext4 /dev/sda rw\n";
        assert_eq!(of(&format!("{root}{own}")), Missing::Share);
        let below = "50 21 0:9 / /var/lib/node/pods/a rw - tmpfs tmpfs rw\n";
        assert_eq!(of(&format!("{root}{below}")), Missing::Free);
        // A name that begins alike is no folder above.
        let alike = format!("{root}60 21 8:3 / /var/li rw shared:2 - ext4 /dev/sdc rw\n");
        assert_eq!(of(&alike), Missing::Bind);
    }

    #[test]
    fn a_disk_of_its_own_is_not_taken_for_a_folder_bound_on_itself() {
        let of = |text: &str| is_bound_on_itself(&lines(text), Path::new("/n"));
        let root = "21 1 8:1 / / rw - ext4 /dev/sda rw\n";
        assert!(of(&format!(
            "{root}40 21 8:1 /n /n rw shared:3 - ext4 /dev/sda rw\n"
        )));
        assert!(!of(&format!(
            "{root}40 21 8:2 / /n rw shared:3 - ext4 /dev/sdb rw\n"
        )));
        assert!(!of(root));
    }

    #[test]
    fn another_folder_of_the_same_disk_is_not_taken_for_the_folder_itself() {
        let of = |text: &str| is_bound_on_itself(&lines(text), Path::new("/var/n"));
        let root = "21 1 8:1 /system / rw - ext4 /dev/sda rw\n";
        let bound = |from: &str, parent: u32| {
            format!("40 {parent} 8:1 {from} /var/n rw - ext4 /dev/sda rw\n")
        };
        assert!(of(&format!("{root}{}", bound("/system/var/n", 21))));
        assert!(!of(&format!("{root}{}", bound("/data/n", 21))));
        // On a bind mount of its own: the folder lies elsewhere on the disk than its place says.
        let var = format!("{root}30 21 8:1 /vars /var rw - ext4 /dev/sda rw\n");
        assert!(of(&format!("{var}{}", bound("/vars/n", 30))));
        assert!(!of(&format!("{var}{}", bound("/system/var/n", 30))));
        // A second time on itself.
        let twice = bound("/system/var/n", 40).replacen("40 40", "41 40", 1);
        assert!(of(&format!("{root}{}{twice}", bound("/system/var/n", 21))));
    }

    #[test]
    fn a_folder_becomes_shared_once_and_is_what_it_was_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        // On a mount of the test's own, so that it is the same on every machine.
        tmpfs(dir.path(), None, 0o755).unwrap();
        let none = None::<&str>;
        mount(none, dir.path(), none, MsFlags::MS_PRIVATE, none).unwrap();
        let node = dir.path().join("node");
        fs::create_dir_all(node.join("below")).unwrap();
        tmpfs(&node.join("below"), None, 0o755).unwrap();
        assert_eq!(share(&node).unwrap(), Sharing::Busy);
        unmount(&node.join("below")).unwrap();
        assert_eq!(share(&node).unwrap(), Sharing::Made);
        assert_eq!(share(&node).unwrap(), Sharing::Already);
        // As if the program had ended between the two steps.
        mount(none, &node, none, MsFlags::MS_PRIVATE, none).unwrap();
        assert_eq!(share(&node).unwrap(), Sharing::Made);
        let shares = table().unwrap();
        assert_eq!(shares.iter().filter(|line| line.point == node).count(), 1);
        unshare(&node).unwrap();
        unshare(&node).unwrap();
        assert!(!is_mounted(&node).unwrap());
        unshare(dir.path()).unwrap();
        assert!(is_mounted(dir.path()).unwrap(), "a mount of somebody else");
        unmount(dir.path()).unwrap();
    }
}
