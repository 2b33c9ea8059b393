//! Walks through folders that their owner changes meanwhile, however deep they are.
//!
//! What lies in a volume is written by the pod: a path there may be longer than the kernel takes,
//! or become a link between a look and a use. So each folder is opened by its name within the one
//! above, and the walk comes back through `..`, which counts only if it is the folder that the walk
//! came from. The folders near the top stay open: a folder that was moved away costs the walk no
//! more than what is left below the nearest of them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use crate::beneath::{Facts, Found};

/// Folders that stay open, from the top: so many descriptors does a walk take.
const HELD_MAX: usize = 64;

/// Where the walk is.
#[derive(Debug)]
pub struct Step<'a> {
    /// The folder that the walk is in, or leaves.
    folder: &'a OwnedFd,
    /// The entry in it; `None`: the walk leaves the folder.
    name: Option<&'a OsString>,
    /// What the entry is, or the folder that the walk leaves.
    pub facts: Facts,
}

impl Step<'_> {
    /// All of this folder has been seen, and the walk leaves it.
    pub fn is_end(&self) -> bool {
        self.name.is_none()
    }

    /// The entry itself, or the folder that the walk leaves, open. A link is not followed.
    pub fn open(&self) -> io::Result<Found> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let handle = match self.name {
            Some(name) => openat(self.folder, name.as_os_str(), flags, Mode::empty())?,
            None => self.folder.try_clone()?,
        };
        Found::new(handle)
    }
}

/// What is to become of the entry that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A folder is entered; anything else is over.
    Enter,
    /// A folder is not entered.
    Pass,
    /// The walk ends.
    Stop,
}

/// A folder on the way down.
struct Level {
    /// Open near the top.
    held: Option<OwnedFd>,
    stat: FileStat,
    /// Folders in it that are still to be entered.
    rest: Vec<OsString>,
}

/// Shows everything in a folder, at any depth, and then the folder itself as one that is left; the
/// same for each folder in it that is entered. What vanishes meanwhile is not shown.
///
/// # Errors
/// Those of `see`, and of folders that cannot be read.
pub fn walk(root: &Path, see: impl FnMut(&Step<'_>) -> io::Result<Next>) -> io::Result<()> {
    walk_some(root, usize::MAX, see)
}

/// The same, of a folder whose entries nobody has limited: of each folder `names_max` entries are
/// shown at most, so that a single one takes neither memory nor time without end.
///
/// # Errors
/// As [`walk`].
pub fn walk_some(
    root: &Path,
    names_max: usize,
    mut see: impl FnMut(&Step<'_>) -> io::Result<Next>,
) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The root itself may be a link: where it leads is its owner's affair.
    let mut here = open(root, flags.difference(OFlag::O_NOFOLLOW), Mode::empty())?;
    let mut levels = Vec::new();
    if enter(&here, names_max, &mut levels, &mut see)? == Next::Stop {
        return Ok(());
    }
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.rest.pop() else {
            match leave(here, &mut levels, &mut see)? {
                Some(above) => here = above,
                None => return Ok(()),
            }
            continue;
        };
        match openat(&here, name.as_os_str(), flags, Mode::empty()) {
            Ok(folder) => here = folder,
            // It is gone, or something else by now.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
            Err(error) => return Err(error.into()),
        }
        if enter(&here, names_max, &mut levels, &mut see)? == Next::Stop {
            return Ok(());
        }
    }
    Ok(())
}

/// Shows the entries of a folder and keeps those that are to be entered.
fn enter(
    here: &OwnedFd,
    names_max: usize,
    levels: &mut Vec<Level>,
    see: &mut impl FnMut(&Step<'_>) -> io::Result<Next>,
) -> io::Result<Next> {
    let mut rest = Vec::new();
    for name in names(here, names_max)? {
        let stat = match fstatat(here, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => continue,
            stat => stat?,
        };
        let facts = Facts::new(&stat);
        let is_folder = facts.is_folder;
        let step = Step {
            folder: here,
            name: Some(&name),
            facts,
        };
        match see(&step)? {
            Next::Enter if is_folder => rest.push(name),
            Next::Stop => return Ok(Next::Stop),
            _ => {}
        }
    }
    levels.push(Level {
        held: (levels.len() < HELD_MAX)
            .then(|| here.try_clone())
            .transpose()?,
        stat: fstat(here)?,
        rest,
    });
    Ok(Next::Enter)
}

/// The names first: a folder that changes while it is read may show names twice, or not.
fn names(folder: &OwnedFd, max: usize) -> io::Result<Vec<OsString>> {
    let entries = fs::read_dir(crate::beneath::name_of(folder))?;
    entries
        .take(max)
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect()
}

/// Shows the end of a folder; answers the one above that the walk goes on in.
fn leave(
    here: OwnedFd,
    levels: &mut Vec<Level>,
    see: &mut impl FnMut(&Step<'_>) -> io::Result<Next>,
) -> io::Result<Option<OwnedFd>> {
    let Some(left) = levels.pop() else {
        return Ok(None);
    };
    let step = Step {
        folder: &here,
        name: None,
        facts: Facts::new(&left.stat),
    };
    if see(&step)? == Next::Stop {
        return Ok(None);
    }
    while let Some(above) = levels.last() {
        if let Some(held) = &above.held {
            return held.try_clone().map(Some);
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if let Ok(found) = openat(here.as_fd(), "..", flags, Mode::empty()) {
            let stat = fstat(&found)?;
            if (stat.st_dev, stat.st_ino) == (above.stat.st_dev, above.stat.st_ino) {
                return Ok(Some(found));
            }
        }
        // The folder was moved while the walk was in it.
        levels.pop();
    }
    Ok(None)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use nix::sys::stat::mkdirat;

    use super::*;

    /// Folders below each other, deeper than a path can say, with a file at the bottom.
    pub(crate) fn make_deep(top: &Path, depth: usize) {
        let flags = OFlag::O_DIRECTORY;
        let mut here = open(top, flags, Mode::empty()).unwrap();
        for _ in 0..depth {
            mkdirat(&here, "folder", Mode::S_IRWXU).unwrap();
            here = openat(&here, "folder", flags, Mode::empty()).unwrap();
        }
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY;
        openat(&here, "bottom", flags, Mode::S_IRWXU).unwrap();
    }

    fn open_descriptors() -> usize {
        fs::read_dir("/proc/self/fd").unwrap().count()
    }

    #[test]
    fn a_walk_sees_what_no_path_can_name_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let depth = 2000;
        make_deep(dir.path(), depth);
        let (mut folders, mut files, mut ends, mut most) = (0, 0, 0, 0);
        let before = open_descriptors();
        walk(dir.path(), |step| {
            if step.is_end() {
                ends += 1;
            } else if step.facts.is_folder {
                folders += 1;
            } else {
                files += 1;
                most = open_descriptors();
                assert_eq!(step.open()?.facts, step.facts);
            }
            Ok(Next::Enter)
        })
        .unwrap();
        assert_eq!((folders, files, ends), (depth, 1, depth + 1));
        // Other tests run beside this one.
        assert!(most < before + 5 * HELD_MAX, "{before} {most}");
        crate::beneath::remove_tree(dir.path()).unwrap();
    }

    #[test]
    fn a_folder_that_is_moved_away_under_the_walk_leads_it_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |names: &str| dir.path().join(names);
        let deep = at("in").join(vec!["f"; HELD_MAX + 8].join("/"));
        for name in ["a", "b"] {
            // Whichever comes first: the other one is looked for where it is not.
            fs::create_dir_all(deep.join(name)).unwrap();
            fs::write(deep.join(name).join("file"), "").unwrap();
            fs::create_dir_all(at("out").join(name)).unwrap();
            fs::write(at("out").join(name).join("secret"), "").unwrap();
        }
        let (mut seen, mut last) = (Vec::<PathBuf>::new(), None);
        walk(&at("in"), |step| {
            let name = step.name.map(PathBuf::from).unwrap_or_default();
            if name == Path::new("file") {
                fs::rename(deep.join("a"), at("out/moved-a"))?;
                fs::rename(deep.join("b"), at("out/moved-b"))?;
            }
            seen.push(name);
            last = step.is_end().then_some(step.facts.identity);
            Ok(Next::Enter)
        })
        .unwrap();
        assert!(seen.contains(&"file".into()), "{seen:?}");
        assert!(!seen.contains(&"secret".into()), "{seen:?}");
        let root = crate::beneath::find(&at("in")).unwrap();
        assert_eq!(last, Some(root.facts.identity));
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_that_was_seen_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |names: &str| dir.path().join(names);
        fs::create_dir_all(at("in/x")).unwrap();
        fs::create_dir(at("out")).unwrap();
        fs::write(at("out/secret"), "").unwrap();
        let mut seen: Vec<PathBuf> = Vec::new();
        walk(&at("in"), |step| {
            let name = step.name.map(PathBuf::from).unwrap_or_default();
            if name == Path::new("x") {
                fs::remove_dir(at("in/x"))?;
                std::os::unix::fs::symlink(at("out"), at("in/x"))?;
                assert!(step.open()?.facts.is_link);
            }
            seen.push(name);
            Ok(Next::Enter)
        })
        .unwrap();
        assert_eq!(seen, [PathBuf::from("x"), PathBuf::new()]);
    }

    #[test]
    fn what_is_passed_is_not_entered_and_a_stop_is_the_end() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let mut seen = 0;
        walk(dir.path(), |_| {
            seen += 1;
            Ok(Next::Pass)
        })
        .unwrap();
        assert_eq!(seen, 2);
        let mut seen = 0;
        walk(dir.path(), |_| {
            seen += 1;
            Ok(Next::Stop)
        })
        .unwrap();
        assert_eq!(seen, 1);
    }
}
