//! cgroup files: which hierarchies are mounted, folders made and removed, values written, processes
//! killed. Nothing here waits or repeats.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::statfs::{CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::Pid;

/// Where cgroups are mounted on every distribution of today.
pub const MOUNT: &str = "/sys/fs/cgroup";

/// How cgroups are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One hierarchy for all controllers, at the mount itself. Kernel 4.5; `cgroup.kill` 5.14.
    V2,
    /// A hierarchy for each controller (or a few together) below the mount, perhaps with an almost
    /// empty `unified` one beside them.
    V1,
}

/// The mode and the folder of each hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchies {
    /// v1 (or hybrid) or v2.
    pub mode: Mode,
    /// On v2 the mount; on v1 one folder for each hierarchy, named after its controllers.
    pub folders: Vec<PathBuf>,
}

/// Looks at what is mounted at `mount`.
///
/// # Errors
/// `NotFound` if no hierarchy is mounted there.
pub fn hierarchies(mount: &Path) -> io::Result<Hierarchies> {
    if statfs(mount)?.filesystem_type() == CGROUP2_SUPER_MAGIC {
        return Ok(Hierarchies {
            mode: Mode::V2,
            folders: vec![mount.to_path_buf()],
        });
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(mount)? {
        let entry = entry?;
        // `cpu` is often a link to `cpu,cpuacct`: the folder itself counts once.
        if entry.file_type()?.is_dir() && is_cgroup(&entry.path()) {
            folders.push(entry.path());
        }
    }
    if folders.is_empty() {
        let words = format!("no cgroup hierarchy is mounted at {}", mount.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, words));
    }
    folders.sort();
    Ok(Hierarchies {
        mode: Mode::V1,
        folders,
    })
}

fn is_cgroup(path: &Path) -> bool {
    let kinds = [CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC];
    statfs(path).is_ok_and(|answer| kinds.contains(&answer.filesystem_type()))
}

/// Makes one cgroup. `false`: it was there.
pub fn make(path: &Path) -> io::Result<bool> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes one cgroup that has neither processes nor children. `false`: it was not there.
pub fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes one value by one `write`, as these files want it; never makes a file.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

/// The processes of this cgroup alone. Those of another pid namespace show as 0 and are left out.
pub fn processes(path: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(path.join("cgroup.procs"))?;
    Ok(text
        .lines()
        .filter_map(|line| line.parse().ok())
        .filter(|&pid| pid > 1)
        .collect())
}

/// The children of this cgroup.
pub fn children(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// Sends SIGKILL to one process. One that is gone is success.
pub fn kill_process(pid: i32) -> io::Result<()> {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Kills every process of a v2 cgroup and of all below it. Kernel 5.14; `NotFound` on an older one.
pub fn kill_tree(path: &Path) -> io::Result<()> {
    write(&path.join("cgroup.kill"), "1")
}
