//! Things that hang: a file system that is frozen, a shim that is stopped. Dropped, they go on.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Smallest file system that ext4 is content with.
const IMAGE_BYTES: u64 = 16 << 20;

/// A file system on which every change waits until it is thawed.
#[derive(Debug)]
pub struct FrozenFilesystem {
    mount_point: PathBuf,
    frozen: bool,
}

impl FrozenFilesystem {
    /// Makes it in `folder` and freezes it.
    pub fn freeze(folder: &Path) -> Result<Self> {
        let (image, mount_point) = (folder.join("frozen.img"), folder.join("frozen"));
        std::fs::create_dir_all(&mount_point)?;
        std::fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        run(Command::new("mke2fs")
            .args(["-q", "-t", "ext4"])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(&mount_point))?;
        let mut made = Self {
            mount_point,
            frozen: false,
        };
        run(Command::new("fsfreeze").arg("-f").arg(&made.mount_point))?;
        made.frozen = true;
        Ok(made)
    }

    /// A folder on it that does not exist: who makes it hangs.
    pub fn path(&self) -> PathBuf {
        self.mount_point.join("new")
    }

    /// Lets go on what hangs.
    pub fn thaw(&mut self) -> Result<()> {
        if std::mem::take(&mut self.frozen) {
            run(Command::new("fsfreeze").arg("-u").arg(&self.mount_point))?;
        }
        Ok(())
    }
}

impl Drop for FrozenFilesystem {
    fn drop(&mut self) {
        if let Err(error) = self.thaw() {
            eprintln!("{error:#}");
        }
        umount2(&self.mount_point, MntFlags::MNT_DETACH).ok();
    }
}

/// The shim of a pod, stopped by a signal: whoever asks it for something waits.
#[derive(Debug)]
pub struct StoppedShim(Pid);

impl StoppedShim {
    /// Stops the shim of the pod with this UID.
    pub fn stop(pod_uid: &str) -> Result<Self> {
        let shim = shim_of(pod_uid).with_context(|| format!("no shim of pod {pod_uid}"))?;
        kill(shim, Signal::SIGSTOP)?;
        Ok(Self(shim))
    }
}

impl Drop for StoppedShim {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).ok();
    }
}

/// The pod's processes, which their cgroups tell.
pub fn processes_of(pod_uid: &str) -> Vec<i32> {
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = folders.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    let is_of_pod = |pid: &i32| {
        let cgroup = std::fs::read_to_string(format!("/proc/{pid}/cgroup"));
        cgroup.is_ok_and(|cgroup| cgroup.contains(&format!("pod{pod_uid}")))
    };
    pids.filter(is_of_pod).collect()
}

/// The parent of the pod's processes.
fn shim_of(pod_uid: &str) -> Option<Pid> {
    processes_of(pod_uid).into_iter().find_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent: i32 = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()?;
        let line = std::fs::read_to_string(format!("/proc/{parent}/cmdline")).ok()?;
        line.contains("containerd-shim")
            .then(|| Pid::from_raw(parent))
    })
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{command:?}: {}", words.trim());
    }
    Ok(())
}
