//! Paths of the node, and what must be there.

use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Modes of what is made. Source: `pkg/volume/hostpath` of Kubernetes.
const FOLDER_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// The path, if what lies there is of the type that the pod names, or could be made.
pub(crate) fn check(path: &str, kind: &str) -> Result<PathBuf, String> {
    let target = Path::new(path);
    if !target.is_absolute() || target.components().any(|it| it == Component::ParentDir) {
        return Err(format!("path {path} must be absolute and without \"..\""));
    }
    let done = match kind {
        "" => Ok(()),
        "DirectoryOrCreate" => make_folder(target).and_then(|()| be(target, "a directory")),
        "Directory" => be(target, "a directory"),
        "FileOrCreate" => make_file(target).and_then(|()| be(target, "a file")),
        "File" => be(target, "a file"),
        "Socket" => be(target, "a socket file"),
        "CharDevice" => be(target, "a character device"),
        "BlockDevice" => be(target, "a block device"),
        other => Err(format!("{other} is an invalid volume type")),
    };
    done.map(|()| target.to_path_buf())
}

fn be(path: &Path, what: &str) -> Result<(), String> {
    let refused = || {
        format!(
            "hostPath type check failed: {} is not {what}",
            path.display()
        )
    };
    let kind = fs::metadata(path).map_err(|_| refused())?.file_type();
    if is(kind, what) {
        Ok(())
    } else {
        Err(refused())
    }
}

fn is(kind: FileType, what: &str) -> bool {
    match what {
        "a directory" => kind.is_dir(),
        "a socket file" => kind.is_socket(),
        "a character device" => kind.is_char_device(),
        "a block device" => kind.is_block_device(),
        _ => kind.is_file(),
    }
}

fn make_folder(path: &Path) -> Result<(), String> {
    if path.exists() {
        return Ok(());
    }
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path);
    made.map_err(|error| format!("mkdir {}: {error}", path.display()))
}

/// The folder of the file must exist: it is not made, as in Kubernetes.
fn make_file(path: &Path) -> Result<(), String> {
    let mut open = fs::OpenOptions::new();
    match open.write(true).create_new(true).mode(FILE_MODE).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(format!("create {}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_takes_what_it_names_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::create_dir(path("dir")).unwrap();
        fs::write(path("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        let passes = |kind: &str, path: &str| check(path, kind).is_ok();
        assert!(passes("Directory", &path("dir")) && !passes("Directory", &path("file")));
        assert!(passes("File", &path("file")) && !passes("File", &path("dir")));
        assert!(passes("Socket", &path("socket")) && !passes("Socket", &path("file")));
        assert!(passes("CharDevice", "/dev/null") && !passes("BlockDevice", "/dev/null"));
        assert!(passes("", &path("missing")) && !passes("Directory", &path("missing")));
        assert!(
            passes("DirectoryOrCreate", &path("new/deep")) && passes("FileOrCreate", &path("n"))
        );
        assert!(!passes("FileOrCreate", &path("nowhere/file")));
        assert!(!passes("Teapot", &path("dir")));
    }

    #[test]
    fn a_path_goes_nowhere_but_down() {
        assert!(check("relative", "").is_err());
        assert!(check("/tmp/../etc", "").is_err());
    }
}
