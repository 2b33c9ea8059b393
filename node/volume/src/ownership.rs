//! A group for all that lies in a volume. Source: `pkg/volume/volume_linux.go` of Kubernetes.

use std::io;
use std::path::Path;

use swiftlet_sys::beneath;
use swiftlet_sys::walk::{self, Next};

/// What the group may do with files, and with folders, which hand the group on.
const FILE_BITS: u32 = 0o660;
const FOLDER_BITS: u32 = 0o2770;

/// Makes the group the owner of the folder and of all below it. `only_on_mismatch`: unless the
/// folder itself is the group's already.
///
/// Pods that run share the volume, and may put a link in the place of what was looked at: all is
/// done to what was opened, never to a path. A folder comes after what lies in it: with its own
/// mode it is finished, should this be interrupted.
pub(crate) fn give(root: &Path, group: u32, only_on_mismatch: bool) -> io::Result<()> {
    if only_on_mismatch {
        let found = beneath::find(root)?.facts;
        if found.group == group && found.mode & FOLDER_BITS == FOLDER_BITS {
            return Ok(());
        }
    }
    walk::walk(root, |step| {
        if step.facts.is_folder && !step.is_end() {
            return Ok(Next::Enter);
        }
        match step.open() {
            // The pods that share a volume may remove something meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => one(&found?, group)?,
        }
        Ok(Next::Enter)
    })
}

fn one(found: &beneath::Found, group: u32) -> io::Result<()> {
    let facts = found.facts;
    if facts.group != group {
        found.set_group(group)?;
    }
    if facts.is_link {
        return Ok(());
    }
    let bits = if facts.is_folder {
        FOLDER_BITS
    } else {
        FILE_BITS
    };
    // A change of the group has cleared bits of it.
    found.set_mode(facts.mode | bits)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Tries of a race that one side or the other wins.
    const RACES: usize = 3000;

    #[test]
    fn a_link_that_is_swapped_in_gives_nothing_of_the_nodes_away() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let secret = outside.path().join("file");
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let (volume, folder) = (dir.path().join("volume"), dir.path().join("volume/x"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        symlink(outside.path(), volume.join("link")).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (swap_over, swapped) = (Arc::clone(&over), volume.clone());
        let swaps = std::thread::spawn(move || {
            let at = |name: &str| swapped.join(name);
            while !swap_over.load(Ordering::Relaxed) {
                for (from, to) in [("x", "y"), ("link", "x"), ("x", "link"), ("y", "x")] {
                    fs::rename(at(from), at(to)).unwrap();
                }
            }
        });
        for race in 0..RACES {
            give(&volume, 2000 + u32::try_from(race % 2).unwrap(), false).unwrap();
        }
        over.store(true, Ordering::Relaxed);
        swaps.join().unwrap();
        for path in [secret.as_path(), outside.path()] {
            assert!(fs::metadata(path).unwrap().gid() < 2000);
        }
        assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o7777, 0o600);
    }

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
        symlink(outside.path(), at("link")).unwrap();
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
