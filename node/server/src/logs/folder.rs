//! The folder of one container's log, held open.
//!
//! A pod that mounts the logs' own folder can put there what it likes: links to files of the node,
//! pipes that nobody writes to, devices without an end. So the way from the root of the logs is
//! walked once, no link on it is followed, and nothing but plain files is read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_PATH};

/// The folder.
#[derive(Debug)]
pub(crate) struct LogFolder(File);

impl LogFolder {
    /// Opens the folder that these names lead to from `root`. The root itself is the node's: it may
    /// be a link.
    pub(crate) fn open(root: &Path, names: &[&str]) -> io::Result<Self> {
        let mut folder = Self(opened(root, O_PATH | O_DIRECTORY)?);
        for name in names {
            let path = folder.below(name)?;
            folder = Self(opened(&path, O_PATH | O_DIRECTORY | O_NOFOLLOW)?);
        }
        Ok(folder)
    }

    /// A path that leads to this folder whatever becomes of its name, for as long as it is open.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }

    /// Opens a file to read it.
    pub(crate) fn file(&self, name: &str) -> io::Result<File> {
        // A pipe without a writer must not hold the thread.
        let file = opened(&self.below(name)?, O_NOFOLLOW | O_NONBLOCK)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no plain file",
        ))
    }

    /// Which file has this name now.
    pub(crate) fn inode(&self, name: &str) -> io::Result<u64> {
        Ok(std::fs::symlink_metadata(self.below(name)?)?.ino())
    }

    /// The names in it.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(self.path())?;
        entries
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    /// The path of one name in it; a name is no path.
    fn below(&self, name: &str) -> io::Result<PathBuf> {
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.path().join(name))
    }
}

fn opened(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_plain_files_are_read_and_no_link_is_followed() {
        let root = tempfile::tempdir().unwrap();
        let (logs, secret) = (root.path().join("logs"), root.path().join("secret"));
        fs::create_dir_all(logs.join("pod/main")).unwrap();
        fs::create_dir_all(secret.join("main")).unwrap();
        fs::write(secret.join("main/0.log"), "secret").unwrap();
        fs::write(logs.join("pod/main/0.log"), "x").unwrap();
        symlink(secret.join("main/0.log"), logs.join("pod/main/1.log")).unwrap();
        mkfifo(&logs.join("pod/main/2.log"), Mode::S_IRWXU).unwrap();
        symlink(&secret, logs.join("linked")).unwrap();
        symlink(secret.join("main"), logs.join("pod/linked")).unwrap();
        symlink("/dev/zero", logs.join("pod/main/3.log")).unwrap();
        let folder = LogFolder::open(&logs, &["pod", "main"]).unwrap();
        assert!(folder.file("0.log").is_ok());
        for bad in ["1.log", "2.log", "3.log", "../main/0.log", "..", ""] {
            assert!(folder.file(bad).is_err(), "{bad}");
        }
        for bad in [["linked", "main"], ["pod", "linked"], ["pod", ".."]] {
            assert!(LogFolder::open(&logs, &bad).is_err(), "{bad:?}");
        }
        // The root may be one.
        let link = root.path().join("link");
        symlink(&logs, &link).unwrap();
        assert!(LogFolder::open(&link, &["pod", "main"]).is_ok());
    }

    #[test]
    fn a_folder_stays_what_it_was_when_its_name_is_given_to_another() {
        let root = tempfile::tempdir().unwrap();
        let main = root.path().join("main");
        fs::create_dir(&main).unwrap();
        fs::write(main.join("0.log"), "x").unwrap();
        let folder = LogFolder::open(root.path(), &["main"]).unwrap();
        fs::rename(&main, root.path().join("old")).unwrap();
        symlink("/etc", &main).unwrap();
        assert_eq!(folder.names().unwrap(), ["0.log"]);
        assert!(folder.inode("0.log").is_ok());
    }
}
