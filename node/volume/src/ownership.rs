//! A group for all that lies in a volume. Source: `pkg/volume/volume_linux.go` of Kubernetes.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::path::Path;

/// What the group may do with files, and with folders, which hand the group on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Makes the group the owner of the folder and of all below it. `only_on_mismatch`: unless the
/// folder itself is the group's already.
pub(crate) fn give(root: &Path, group: u32, only_on_mismatch: bool) -> io::Result<()> {
    if only_on_mismatch {
        let found = fs::metadata(root)?;
        if found.gid() == group && found.mode() & FOLDER_BITS == FOLDER_BITS {
            return Ok(());
        }
    }
    below(root, group)
}

/// The folder after what lies in it: with its own mode it is finished, should this be interrupted.
fn below(path: &Path, group: u32) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        // The pods that share a volume may remove something meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if found.is_dir() {
        for entry in fs::read_dir(path)? {
            below(&entry?.path(), group)?;
        }
    }
    one(path, &found, group)
}

fn one(path: &Path, found: &Metadata, group: u32) -> io::Result<()> {
    if found.gid() != group {
        lchown(path, None, Some(group))?;
    }
    if found.file_type().is_symlink() {
        return Ok(());
    }
    let bits = if found.is_dir() {
        FOLDER_BITS
    } else {
        FILE_BITS
    };
    let mode = found.mode() & 0o7777;
    // A change of the group has cleared bits of it.
    fs::set_permissions(path, Permissions::from_mode(mode | bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_gets_everything_but_where_links_lead() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| dir.path().join(name);
        let look = |path: &Path| {
            let found = fs::metadata(path).unwrap();
            (found.gid(), found.mode() & 0o7777)
        };
        fs::create_dir(at("a")).unwrap();
        fs::write(at("a/file"), "").unwrap();
        fs::set_permissions(at("a/file"), Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(outside.path(), at("link")).unwrap();
        let before = look(outside.path());
        give(dir.path(), 2000, true).unwrap();
        assert_eq!(look(&at("a/file")), (2000, 0o660));
        assert_eq!(look(&at("a")).1 & FOLDER_BITS, FOLDER_BITS);
        assert_eq!(look(outside.path()), before);
        // The folder is the group's: what lies in it is left as it is.
        fs::set_permissions(at("a/file"), Permissions::from_mode(0o600)).unwrap();
        give(dir.path(), 2000, true).unwrap();
        assert_eq!(look(&at("a/file")).1, 0o600);
        give(dir.path(), 2000, false).unwrap();
        assert_eq!(look(&at("a/file")).1, 0o660);
    }
}
