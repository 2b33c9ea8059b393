//! A pod's cgroup, and containers in it as a runtime lays them out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use swiftlet_model::ids::PodUid;
use swiftlet_sys::cgroup;

/// Removed with all that runs in it.
pub(super) struct Place {
    pub(super) uid: PodUid,
    /// As the kubelet names it.
    pub(super) cgroup: String,
    top: PathBuf,
    directory: PathBuf,
}

impl Place {
    pub(super) fn new() -> Result<Self> {
        let id = std::process::id();
        let v1 = Path::new(cgroup::MOUNT).join("pids");
        let mount = if v1.exists() {
            v1
        } else {
            PathBuf::from(cgroup::MOUNT)
        };
        let top = mount.join(format!("swiftlet-bench-{id}"));
        let directory = top.join(format!("pod{id}"));
        fs::create_dir_all(&directory).context("a cgroup of the bench's own")?;
        Ok(Self {
            uid: PodUid::from(id.to_string().as_str()),
            cgroup: format!("/swiftlet-bench-{id}/pod{id}"),
            top,
            directory,
        })
    }

    /// Starts a container's first process.
    pub(super) fn start(&self, id: &str, script: &str) -> Result<Container> {
        let directory = self.directory.join(id);
        fs::create_dir(&directory)?;
        let procs = directory.join("cgroup.procs");
        let enter = format!(
            "echo 0 > {}; exec unshare --mount sh -c '{script}'",
            procs.display()
        );
        let child = Command::new("sh")
            .args(["-c", &enter])
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Container { child, directory })
    }

    /// Makes and removes containers' cgroups; answers how many.
    pub(super) fn make_and_remove(&self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut count = 0;
        while Instant::now() < end {
            let directory = self.directory.join(format!("made{count}"));
            fs::create_dir(&directory)?;
            fs::remove_dir(&directory)?;
            count += 1;
        }
        Ok(count)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for error in [&self.directory, &self.top].map(|folder| clear(folder)) {
            if let Err(error) = error {
                eprintln!("{} stays: {error}", self.top.display());
            }
        }
    }
}

/// Removes a cgroup with the containers in it, some of which may still run.
fn clear(folder: &Path) -> std::io::Result<()> {
    for container in cgroup::children(folder)? {
        for process in cgroup::processes(&container)? {
            cgroup::kill_process(process)?;
        }
        // The kernel takes a moment to empty it; what stays then is named.
        std::thread::sleep(Duration::from_millis(1));
        cgroup::remove(&container)?;
    }
    cgroup::remove(folder).map(drop)
}

/// A container's first process and its cgroup.
pub(super) struct Container {
    child: Child,
    directory: PathBuf,
}

impl Container {
    pub(super) fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Waits for the end and removes the cgroup.
    pub(super) fn end(mut self) -> Result<()> {
        self.child.wait()?;
        Ok(fs::remove_dir(&self.directory)?)
    }
}
