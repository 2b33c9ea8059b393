//! Paths within a folder that no link and no race leads out of it. Needs Linux 5.6 (`openat2`).
//!
//! What lies in a volume is written by the pod: any part of a path there may be a link to the
//! node's own files, or become one between a look and a use. So the kernel itself resolves the
//! path below the folder's handle, and what was found is used by its handle alone.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Folders below each other that are walked through: deeper ones are an error, not a full stack.
const DEPTH_MAX: usize = 1000;
/// How often a path is resolved while it is being renamed.
const AGAIN_MAX: usize = 32;

/// What a path leads to, held open.
#[derive(Debug)]
pub struct Found {
    handle: OwnedFd,
    /// It is a folder.
    pub is_folder: bool,
    /// Device and number: what it is, under whatever name.
    pub identity: (u64, u64),
}

impl Found {
    fn new(handle: OwnedFd) -> io::Result<Self> {
        let stat = fstat(&handle)?;
        Ok(Self {
            is_folder: SFlag::from_bits_truncate(stat.st_mode) == SFlag::S_IFDIR,
            identity: (stat.st_dev, stat.st_ino),
            handle,
        })
    }

    /// A name by which this process reaches exactly what was found, for a mount.
    pub fn path(&self) -> PathBuf {
        name_of(&self.handle)
    }
}

fn name_of(handle: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}

/// Opens a path; a link at its end is followed.
pub fn find(path: &Path) -> io::Result<Found> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    Found::new(open(path, flags, Mode::empty())?)
}

/// Opens `part` of the folder `root`, and makes the folders on the way to it, and itself, if they
/// are missing. Links within the folder are followed as long as they stay in it.
///
/// # Errors
/// `EXDEV` where the path leads out of the folder.
pub fn find_or_make(root: &Path, part: &Path, mode: u32) -> io::Result<Found> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(root, flags, Mode::empty())?;
    match below(&root, part, OFlag::O_PATH) {
        Err(Errno::ENOENT) => {}
        found => return Found::new(found?),
    }
    let mut way = PathBuf::new();
    for component in part.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::EXDEV.into());
        };
        let parent = std::mem::take(&mut way);
        way = parent.join(name);
        if !matches!(below(&root, &way, OFlag::O_PATH), Err(Errno::ENOENT)) {
            continue;
        }
        let parent = match parent.as_os_str() {
            top if top.is_empty() => below(&root, Path::new("."), OFlag::O_DIRECTORY)?,
            _ => below(&root, &parent, OFlag::O_DIRECTORY)?,
        };
        make(&parent, Path::new(name), mode)?;
    }
    Found::new(below(&root, part, OFlag::O_PATH)?)
}

fn below(root: &OwnedFd, part: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    // The kernel says EAGAIN when a rename on the way might have led it out: it is asked again.
    for _ in 0..AGAIN_MAX {
        match openat2(root, part, how) {
            Err(Errno::EAGAIN) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// Makes a folder with exactly this mode; one that has come into being meanwhile is left as it is.
fn make(parent: &OwnedFd, name: &Path, mode: u32) -> io::Result<()> {
    match mkdirat(parent, name, Mode::from_bits_truncate(0o700)) {
        Err(Errno::EEXIST) => return Ok(()),
        made => made?,
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let made = openat(parent, name, flags, Mode::empty())?;
    // By its handle: the name may be another's by now.
    fs::File::from(made).set_permissions(Permissions::from_mode(mode))
}

/// Whether something is mounted at exactly this path: the kernel refuses to step on it.
pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(true);
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = open(parent, flags, Mode::empty())?;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
    match on_this_mount(&parent, Path::new(name), flags) {
        Err(Errno::EXDEV) => Ok(true),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(false),
    }
}

fn on_this_mount(parent: impl AsFd, name: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_XDEV | ResolveFlag::RESOLVE_NO_SYMLINKS);
    openat2(parent, name, how)
}

/// Removes a folder with all below it. Links are removed, not followed; at a mount point, whatever
/// is mounted there, it ends with `EXDEV`. One that is not there is removed already.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(Errno::EINVAL.into());
    };
    let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = match open(parent, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    match remove_folder(&parent, Path::new(name), 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn remove_folder(parent: impl AsFd, name: &Path, depth: usize) -> io::Result<()> {
    if depth == DEPTH_MAX {
        return Err(Errno::ELOOP.into());
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let folder = on_this_mount(parent.as_fd(), name, flags)?;
    // The names first: a folder that changes while it is read may show names twice, or not.
    let entries = fs::read_dir(name_of(&folder))?;
    let names: Vec<OsString> = entries
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<io::Result<_>>()?;
    for name in &names {
        match unlinkat(&folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => remove_folder(&folder, Path::new(name), depth + 1)?,
            Err(error) => return Err(error.into()),
        }
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;
    use crate::mount;

    #[test]
    fn a_missing_part_is_made_with_the_mode_that_is_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let found = find_or_make(root.path(), Path::new("a/b"), 0o2775).unwrap();
        assert!(found.is_folder);
        let made = fs::metadata(root.path().join("a/b")).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o2775);
        assert_eq!(found.identity, (made.dev(), made.ino()));
        fs::write(root.path().join("a/file"), "x").unwrap();
        let file = find_or_make(root.path(), Path::new("a/file"), 0o755).unwrap();
        assert!(!file.is_folder);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "x");
    }

    #[test]
    fn links_are_followed_inside_and_refused_outside() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("real")).unwrap();
        symlink("real", at("inside")).unwrap();
        symlink(outside.path(), at("absolute")).unwrap();
        symlink("../..", at("up")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        let try_part = |part: &str| find_or_make(root.path(), Path::new(part), 0o755);
        let real = fs::metadata(at("real")).unwrap();
        assert_eq!(
            try_part("inside").unwrap().identity,
            (real.dev(), real.ino())
        );
        assert!(try_part("inside/new").is_ok() && at("real/new").is_dir());
        for part in [
            "absolute",
            "absolute/new",
            "up",
            "up/new",
            "dangling",
            "../x",
            "/etc",
        ] {
            assert!(try_part(part).is_err(), "{part}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_tree_is_removed_up_to_the_first_mount() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, kept) = (dir.path().join("tree"), dir.path().join("kept"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir(&kept).unwrap();
        fs::write(kept.join("precious"), "x").unwrap();
        symlink(&kept, tree.join("link")).unwrap();
        // On the same device: its number alone would not tell.
        mount::bind(&kept, &tree.join("a/b")).unwrap();
        assert!(is_mount_point(&tree.join("a/b")).unwrap());
        let error = remove_tree(&tree).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EXDEV as i32));
        mount::unmount(&tree.join("a/b")).unwrap();
        assert!(!is_mount_point(&tree.join("a/b")).unwrap());
        remove_tree(&tree).unwrap();
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(kept.join("precious")).unwrap(), "x");
    }
}
