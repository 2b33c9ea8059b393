//! A containerd of the stack's own: own configuration, root, state and socket. The machine's is
//! left alone.

mod remains;
mod runtime;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::process::{Process, wait_for};

pub use self::runtime::{Runtime, ctr};

/// How long the daemon may take to serve its socket.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// What the stack decides.
#[derive(Clone, Debug)]
pub struct ContainerdOptions {
    /// Name of the sandbox image.
    pub pause_image: String,
    /// Folder of network configurations.
    pub cni_conf_dir: PathBuf,
    /// Folder of network plugins.
    pub cni_bin_dir: PathBuf,
}

/// The daemon. Dropped, it is stopped with all its shims.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
    runtime: Runtime,
    daemon: Option<Process>,
    keep: bool,
}

impl Containerd {
    /// Starts the daemon in `<stack>/containerd` and waits until it serves.
    pub fn start(stack: &Path, options: &ContainerdOptions) -> Result<Self> {
        let dir = stack.join("containerd");
        std::fs::create_dir_all(&dir)?;
        let runtime = Runtime::of_environment()?;
        let configuration = runtime.configuration(&dir, options);
        std::fs::write(dir.join("config.toml"), configuration)?;
        let mut containerd = Self {
            dir,
            runtime,
            daemon: None,
            keep: false,
        };
        containerd.restart()?;
        Ok(containerd)
    }

    /// Finds the one that an earlier command left running.
    pub fn find(stack: &Path) -> Option<Self> {
        let dir = stack.join("containerd");
        let daemon = Process::find(&dir, "containerd")?;
        let runtime = Runtime::of_environment().ok()?;
        Some(Self {
            dir,
            runtime,
            daemon: Some(daemon),
            keep: false,
        })
    }

    /// The socket of a stack's daemon.
    pub fn socket_in(stack: &Path) -> PathBuf {
        stack.join("containerd/containerd.sock")
    }

    /// Starts the daemon with the configuration that is there; shims that live on are found again.
    pub fn restart(&mut self) -> Result<()> {
        let mut command = self.runtime.daemon();
        command.arg("--config").arg(self.dir.join("config.toml"));
        let daemon = Process::start(&self.dir, "containerd", &mut command)?;
        let socket = self.dir.join("containerd.sock");
        wait_for("containerd serves", READY_LIMIT, || {
            if !daemon.is_running() {
                let log = std::fs::read_to_string(daemon.log()).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default().to_owned();
                return Some(Err(anyhow::anyhow!("containerd ended: {last}")));
            }
            let answer = self.runtime.ask(&socket).output();
            answer
                .is_ok_and(|answer| answer.status.success())
                .then_some(Ok(()))
        })??;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Kills the daemon as a crash would; containers and shims live on.
    pub fn kill_daemon(&mut self) -> Result<()> {
        self.daemon
            .take()
            .context("containerd does not run")?
            .kill()
    }

    /// Leaves it running when this value is dropped.
    pub fn leave_running(mut self) {
        self.keep = true;
    }

    /// Stops the daemon and what its shims still hold, and removes its mounts.
    pub fn stop(mut self) -> Result<()> {
        self.keep = true;
        self.stop_all()
    }

    fn stop_all(&mut self) -> Result<()> {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop()?;
        }
        // A shim that is killed leaves its containers running, so they go first.
        let shims = self.shims();
        let cgroups = remains::cgroups(&shims);
        for pid in remains::descendants(&shims).into_iter().chain(shims) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).ok();
        }
        wait_for("shims end", READY_LIMIT, || {
            self.shims().is_empty().then_some(())
        })?;
        remains::remove_cgroups(&cgroups);
        self.unmount_all()
    }

    /// Shims bear the daemon's socket on their command line.
    fn shims(&self) -> Vec<i32> {
        let socket = self.dir.join("containerd.sock").display().to_string();
        let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
        pids.filter(|pid| is_shim(*pid, &socket)).collect()
    }

    fn unmount_all(&self) -> Result<()> {
        let below = format!("{}/", self.dir.display());
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        // Newest first: a mount may lie on another.
        for point in points
            .filter(|point| point.starts_with(&below))
            .collect::<Vec<_>>()
            .iter()
            .rev()
        {
            nix::mount::umount2(*point, nix::mount::MntFlags::MNT_DETACH)
                .with_context(|| format!("unmount {point}"))?;
        }
        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        if let Err(error) = self.stop_all() {
            eprintln!("containerd not stopped: {error:#}");
        }
    }
}

fn is_shim(pid: i32, socket: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<_> = line
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy)
        .collect();
    let is_shim = words
        .first()
        .is_some_and(|program| program.contains("containerd-shim"));
    is_shim
        && words
            .windows(2)
            .any(|pair| pair[0] == "-address" && pair[1] == socket)
}
