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
use nix::fcntl::{
    AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, open, openat, openat2, renameat2,
};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, mkdirat};
use nix::unistd::{Gid, UnlinkatFlags, fchownat, unlinkat};

/// Folders below each other that are removed in place, each with a descriptor of its own. Deeper
/// ones are moved up first.
const DEPTH_MAX: usize = 64;
/// How often a path is resolved while it is being renamed.
const AGAIN_MAX: usize = 32;

/// What the kernel says of a file, as far as anybody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// It is a folder.
    pub is_folder: bool,
    /// It is a link.
    pub is_link: bool,
    /// Device and number: what it is, under whatever name.
    pub identity: (u64, u64),
    /// How many names it has.
    pub names: u64,
    /// What it takes on the disk, in bytes.
    pub bytes: u64,
    /// Permissions and the bits above them.
    pub mode: u32,
    /// Its group.
    pub group: u32,
}

impl Facts {
    /// What `st_blocks` counts. Source: stat(2).
    const BLOCK_BYTES: u64 = 512;

    pub(crate) fn new(stat: &FileStat) -> Self {
        let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
        Self {
            is_folder: kind == SFlag::S_IFDIR,
            is_link: kind == SFlag::S_IFLNK,
            identity: (stat.st_dev, stat.st_ino),
            names: stat.st_nlink,
            bytes: u64::try_from(stat.st_blocks)
                .map_or(0, |it| it.saturating_mul(Self::BLOCK_BYTES)),
            mode: stat.st_mode & 0o7777,
            group: stat.st_gid,
        }
    }
}

/// What a path leads to, held open.
#[derive(Debug)]
pub struct Found {
    handle: OwnedFd,
    /// What it is.
    pub facts: Facts,
}

impl Found {
    pub(crate) fn new(handle: OwnedFd) -> io::Result<Self> {
        let facts = Facts::new(&fstat(&handle)?);
        Ok(Self { handle, facts })
    }

    /// A name by which this process reaches exactly what was found, for a mount.
    pub fn path(&self) -> PathBuf {
        name_of(&self.handle)
    }

    /// Gives it to a group.
    pub fn set_group(&self, group: u32) -> io::Result<()> {
        let group = Some(Gid::from_raw(group));
        fchownat(&self.handle, "", None, group, AtFlags::AT_EMPTY_PATH).map_err(Into::into)
    }

    /// Changes its mode. A link has none.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        fs::set_permissions(self.path(), Permissions::from_mode(mode))
    }
}

pub(crate) fn name_of(handle: &OwnedFd) -> PathBuf {
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
    let root = match on_this_mount(&parent, Path::new(name), FOLDER) {
        Err(Errno::ENOENT) => return Ok(()),
        opened => opened?,
    };
    let mut removal = Removal {
        root: &root,
        moved: Vec::new(),
        count: 0,
    };
    removal.empty(&root, 0)?;
    while let Some(name) = removal.moved.pop() {
        removal.folder(&root, Path::new(&name), 1)?;
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed.map_err(Into::into),
    }
}

/// How a folder is opened whose entries are to be removed.
const FOLDER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW);

/// The removal of one tree. A pod can make folders far deeper than there are descriptors: what lies
/// deep is moved to the top of the tree, and removed there.
struct Removal<'a> {
    root: &'a OwnedFd,
    /// Names in the root of what was moved there.
    moved: Vec<OsString>,
    /// How many were moved, for their names.
    count: u64,
}

impl Removal<'_> {
    fn folder(&mut self, parent: &OwnedFd, name: &Path, depth: usize) -> io::Result<()> {
        let folder = on_this_mount(parent, name, FOLDER)?;
        if depth == DEPTH_MAX {
            return self.move_up(parent, name);
        }
        self.empty(&folder, depth)?;
        unlinkat(parent, name, UnlinkatFlags::RemoveDir).map_err(Into::into)
    }

    fn empty(&mut self, folder: &OwnedFd, depth: usize) -> io::Result<()> {
        // The names first: a folder that changes while it is read may show names twice, or not.
        let entries = fs::read_dir(name_of(folder))?;
        let names: Vec<OsString> = entries
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<io::Result<_>>()?;
        for name in &names {
            match unlinkat(folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(Errno::EISDIR) => self.folder(folder, Path::new(name), depth + 1)?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whatever has the new name already stays: the next one is tried.
    fn move_up(&mut self, parent: &OwnedFd, name: &Path) -> io::Result<()> {
        loop {
            let new = OsString::from(format!(".deep-{}", self.count));
            self.count += 1;
            let flags = RenameFlags::RENAME_NOREPLACE;
            match renameat2(parent, name, self.root, new.as_os_str(), flags) {
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => {
                    self.moved.push(new);
                    return Ok(());
                }
            }
        }
    }
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
        assert!(found.facts.is_folder);
        let made = fs::metadata(root.path().join("a/b")).unwrap();
        assert_eq!(made.mode() & 0o7777, 0o2775);
        assert_eq!(found.facts.identity, (made.dev(), made.ino()));
        fs::write(root.path().join("a/file"), "x").unwrap();
        let file = find_or_make(root.path(), Path::new("a/file"), 0o755).unwrap();
        assert!(!file.facts.is_folder);
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
            try_part("inside").unwrap().facts.identity,
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
    #[test]
    fn a_tree_deeper_than_there_are_descriptors_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        // A name that the removal would like to take.
        fs::write(tree.join(".deep-0"), "x").unwrap();
        crate::walk::tests::make_deep(&tree, 2000);
        remove_tree(&tree).unwrap();
        assert!(!tree.exists());
    }
}
