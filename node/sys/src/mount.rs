//! Mounts: made, listed, removed.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Mounts a tmpfs whose content is never swapped to a disk, if the kernel can do so.
/// `size_bytes`: its limit; `None` is the kernel's, half of the memory.
pub fn tmpfs(target: &Path, size_bytes: Option<u64>, mode: u32) -> io::Result<()> {
    let size = size_bytes
        .map(|size| format!(",size={size}"))
        .unwrap_or_default();
    let options = format!("mode={mode:o}{size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let kind = Some("tmpfs");
    let try_with = |options: &str| mount(kind, target, kind, flags, Some(options));
    // Kernels before 6.4 do not know the word.
    match try_with(&format!("{options},noswap")) {
        Err(Errno::EINVAL) => try_with(&options).map_err(Into::into),
        made => made.map_err(Into::into),
    }
}

/// Mounts a file system of huge pages of this size (`2M`, `1Gi`).
pub fn hugetlbfs(target: &Path, page_size: &str, mode: u32) -> io::Result<()> {
    let options = format!("mode={mode:o},pagesize={page_size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let kind = Some("hugetlbfs");
    mount(kind, target, kind, flags, Some(options.as_str())).map_err(Into::into)
}

/// Shows at `target` what lies at `source` too; mounts below that are not shown.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    let none = None::<&str>;
    mount(Some(source), target, none, MsFlags::MS_BIND, none).map_err(Into::into)
}

/// Unmounts what is mounted at `target`; never follows a link there.
pub fn unmount(target: &Path) -> io::Result<()> {
    umount2(target, MntFlags::UMOUNT_NOFOLLOW).map_err(Into::into)
}

/// The mount points at and below a folder, as this mount namespace has them, the newest first.
/// Reads the kernel's table, so that a dead network mount cannot hang the caller.
pub fn below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut points = points(&table);
    points.retain(|point| point.starts_with(folder));
    points.reverse();
    Ok(points)
}

/// The fifth field of each line, in the order of the table. Source: proc(5).
fn points(table: &[u8]) -> Vec<PathBuf> {
    let lines = table.split(|byte| *byte == b'\n');
    let fields = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    fields.map(|field| PathBuf::from(unescape(field))).collect()
}

/// Blanks, tabs, line ends and backslashes stand there as three octal digits.
pub(crate) fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Whether something is mounted at exactly this path.
pub fn is_mounted(target: &Path) -> io::Result<bool> {
    let points = below(target)?;
    Ok(points
        .iter()
        .any(|point| point.as_os_str().as_bytes() == target.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_with_blanks_are_read_back() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134c rw - tmpfs tmpfs rw\n";
        assert_eq!(points(line), [PathBuf::from("/mnt/a b\\c")]);
    }

    #[test]
    fn a_tmpfs_is_seen_limited_and_gone_after_the_unmount() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("with blank");
        fs::create_dir(&target).unwrap();
        tmpfs(&target, Some(1 << 20), 0o1777).unwrap();
        assert!(is_mounted(&target).unwrap());
        assert_eq!(below(folder.path()).unwrap(), [target.as_path()]);
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let mut numbers = release
            .split(['.', '-'])
            .map_while(|it| it.parse::<u32>().ok());
        let version = (numbers.next().unwrap(), numbers.next().unwrap());
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.contains("/with\\040blank "));
        let has_word = line.unwrap().split([' ', ',']).any(|it| it == "noswap");
        assert_eq!(has_word, version >= (6, 4), "{line:?}");
        assert!(fs::write(target.join("large"), vec![0; 2 << 20]).is_err());
        unmount(&target).unwrap();
        assert!(!is_mounted(&target).unwrap());
    }
}
