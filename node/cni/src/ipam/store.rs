//! host-local's files, so that a node can move to the reference plugin and back.
//!
//! ```text
//! <dataDir>/<network>/10.88.0.7            "<container id>\r\n<interface>"
//! <dataDir>/<network>/fd00:88::7           the same, of the pod's second range set
//! <dataDir>/<network>/last_reserved_ip.0   "10.88.0.7": of the first range set
//! <dataDir>/<network>/lock                 empty; host-local locks it while it works
//! <dataDir>/<network>/boot_id              ours: the boot that the addresses belong to
//! ```
//!
//! An address is reserved by creating its file exclusively, which is what arbitrates between this
//! process and the reference plugin; so the lock is left to host-local.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::allocator::Holder;
use crate::disk;
use crate::error::{NetworkError, file_error};

const LINE_BREAK: &str = "\r\n";
const LAST_RESERVED: &str = "last_reserved_ip.";
const LOCK: &str = "lock";
const BOOT_ID: &str = "boot_id";
/// The same while it is being written.
const NEW_BOOT_ID: &str = "boot_id.new";
const BOOT_ID_SOURCE: &str = "/proc/sys/kernel/random/boot_id";

/// The folder of one network.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
}

impl Store {
    /// Opens or makes the folder; drops addresses of another boot.
    pub fn open(dir: &Path) -> Result<Self, NetworkError> {
        let store = Self {
            dir: dir.to_path_buf(),
        };
        disk::create_dir_all(dir).map_err(file_error("create", dir))?;
        let lock = dir.join(LOCK);
        disk::create(&lock).map_err(file_error("create", &lock))?;
        store.drop_other_boots()?;
        Ok(store)
    }

    /// All addresses and their holders.
    pub fn load(&self) -> Result<Vec<(IpAddr, Holder)>, NetworkError> {
        let mut found = Vec::new();
        for address in self.addresses()? {
            // Gone between the listing and now: released by somebody.
            if let Some(holder) = self.read(address)? {
                found.push((address, holder));
            }
        }
        Ok(found)
    }

    /// Who holds the address.
    pub fn read(&self, address: IpAddr) -> Result<Option<Holder>, NetworkError> {
        let path = self.path(address);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(parse(&text))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", &path)(error)),
        }
    }

    /// Writes the address' file. `false` if there is one already.
    pub fn reserve(
        &self,
        address: IpAddr,
        holder: &Holder,
        set: usize,
    ) -> Result<bool, NetworkError> {
        let path = self.path(address);
        let text = format!("{}{LINE_BREAK}{}", holder.container_id, holder.ifname);
        let last = self.dir.join(format!("{LAST_RESERVED}{set}"));
        match disk::write_new(&path, text.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            written => written.and_then(|()| disk::write(&last, address.to_string())),
        }
        .map(|()| true)
        .map_err(|error| {
            // Nothing half-written may stay; the first failure is the one to report.
            let _ = disk::remove_file(&path);
            file_error("write", &path)(error)
        })
    }

    /// Removes the address' file; it need not exist.
    pub fn release(&self, address: IpAddr) -> Result<(), NetworkError> {
        remove_file(&self.path(address))
    }

    /// The address that was reserved last from a range set.
    pub fn last_reserved(&self, set: usize) -> Result<Option<IpAddr>, NetworkError> {
        let path = self.dir.join(format!("{LAST_RESERVED}{set}"));
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", &path)(error)),
        }
    }

    /// Removes the folder with all that is ours or host-local's in it.
    pub fn remove(&self) -> Result<(), NetworkError> {
        for address in self.addresses()? {
            self.release(address)?;
        }
        for name in self.names()? {
            let is_ours = [LOCK, BOOT_ID, NEW_BOOT_ID].contains(&name.as_str());
            if is_ours || name.starts_with(LAST_RESERVED) {
                remove_file(&self.dir.join(name))?;
            }
        }
        match disk::remove_dir(&self.dir) {
            // Somebody else's file is in it: then the folder is not ours to remove.
            Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other.map_err(file_error("remove", &self.dir)),
        }
    }

    fn drop_other_boots(&self) -> Result<(), NetworkError> {
        let path = self.dir.join(BOOT_ID);
        let current = fs::read_to_string(BOOT_ID_SOURCE)
            .map_err(file_error("read", Path::new(BOOT_ID_SOURCE)))?;
        match fs::read_to_string(&path) {
            Ok(written) if written == current => return Ok(()),
            // An empty file says nothing: a disk may have lost what was in it.
            Ok(written) if !written.trim().is_empty() => {
                for address in self.addresses()? {
                    self.release(address)?;
                }
            }
            // host-local's own folder: its addresses may be of pods that run. They are kept, and
            // the reconciliation with live sandboxes decides.
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(error) => return Err(file_error("read", &path)(error)),
        }
        // Never half written: that would be another boot's, and the addresses of pods that run
        // would go.
        let new = self.dir.join(NEW_BOOT_ID);
        disk::write(&new, current).map_err(file_error("write", &new))?;
        disk::rename(&new, &path).map_err(file_error("write", &path))
    }

    /// All addresses that have a file.
    pub(super) fn addresses(&self) -> Result<Vec<IpAddr>, NetworkError> {
        Ok(self
            .names()?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect())
    }

    fn names(&self) -> Result<Vec<String>, NetworkError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(file_error("read", &self.dir)(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(file_error("read", &self.dir))?;
            names.extend(entry.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn path(&self, address: IpAddr) -> PathBuf {
        self.dir.join(address.to_string())
    }
}

/// Who holds what in the networks that keep their files in this folder, but for those of which the
/// folders are named.
pub(crate) fn load_others(
    data_dir: &Path,
    known: &[PathBuf],
) -> Result<Vec<(IpAddr, Holder)>, NetworkError> {
    let others = Store {
        dir: data_dir.to_path_buf(),
    };
    let mut found = Vec::new();
    for dir in others.names()?.iter().map(|name| data_dir.join(name)) {
        if dir.is_dir() && !known.contains(&dir) {
            found.extend(Store { dir }.load()?);
        }
    }
    Ok(found)
}

fn parse(text: &str) -> Holder {
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default().trim().to_owned();
    Holder {
        container_id: line(),
        ifname: line(),
    }
}

fn remove_file(path: &Path) -> Result<(), NetworkError> {
    match disk::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(file_error("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::Ipv4Addr;

    use super::*;

    fn holder() -> Holder {
        Holder {
            container_id: "c1".into(),
            ifname: "eth0".into(),
        }
    }

    const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 88, 0, 7));

    #[test]
    fn files_are_written_as_host_local_writes_them() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.reserve(ADDRESS, &holder(), 0).unwrap());
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("10.88.0.7"), "c1\r\neth0");
        assert_eq!(read("last_reserved_ip.0"), "10.88.0.7");
        assert_eq!(read("lock"), "");
        let second = "fd00:88:0:0:0:0:0:7".parse().unwrap();
        assert!(store.reserve(second, &holder(), 1).unwrap());
        assert_eq!(read("fd00:88::7"), "c1\r\neth0");
        assert_eq!(read("last_reserved_ip.1"), "fd00:88::7");
        assert_eq!(read("last_reserved_ip.0"), "10.88.0.7");
        assert_eq!(store.load().unwrap().len(), 2);
    }

    #[test]
    fn an_address_is_reserved_once_and_released_twice() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert!(store.reserve(ADDRESS, &holder(), 0).unwrap());
        assert!(!store.reserve(ADDRESS, &holder(), 0).unwrap());
        store.release(ADDRESS).unwrap();
        store.release(ADDRESS).unwrap();
        assert_eq!(store.read(ADDRESS).unwrap(), None);
    }

    #[test]
    fn addresses_of_another_boot_are_dropped_and_those_of_host_local_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("10.88.0.7"), "c1\r\neth0").unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load().unwrap(), vec![(ADDRESS, holder())]);
        fs::write(dir.path().join(BOOT_ID), "another boot\n").unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().load().unwrap(), vec![]);
    }

    #[test]
    fn a_boot_that_is_not_known_drops_nothing_and_none_is_ever_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(BOOT_ID);
        fs::write(dir.path().join("10.88.0.7"), "c1\r\neth0").unwrap();
        // What a process leaves that is killed between making a file and filling it.
        fs::write(&path, "").unwrap();
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(store.load().unwrap(), vec![(ADDRESS, holder())]);
        let current = fs::read_to_string(BOOT_ID_SOURCE).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), current);
        // Another file takes its place: the old one is never emptied.
        fs::write(&path, "another boot\n").unwrap();
        let before = File::open(&path).unwrap();
        Store::open(dir.path()).unwrap();
        let old = std::io::read_to_string(before).unwrap();
        assert_eq!(old, "another boot\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), current);
    }

    #[test]
    fn the_holders_of_networks_that_are_not_open_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let [open, closed] = ["open", "closed"].map(|name| dir.path().join(name));
        for folder in [&open, &closed] {
            let store = Store::open(folder).unwrap();
            store.reserve(ADDRESS, &holder(), 0).unwrap();
        }
        fs::write(dir.path().join("10.88.0.9"), "no folder").unwrap();
        let found = |known: &[PathBuf]| load_others(dir.path(), known).unwrap();
        assert_eq!(found(std::slice::from_ref(&open)), [(ADDRESS, holder())]);
        assert_eq!(found(&[open, closed]), []);
    }

    #[test]
    fn an_unused_folder_can_be_removed_with_everything_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("net")).unwrap();
        store.reserve(ADDRESS, &holder(), 0).unwrap();
        store.remove().unwrap();
        store.remove().unwrap();
        assert!(!dir.path().join("net").exists());
    }
}
