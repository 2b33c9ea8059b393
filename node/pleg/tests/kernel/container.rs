//! Pods and containers as a runtime lays them out: a cgroup each, and a first process that goes
//! through a process of the "runtime" in the same cgroup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use swiftlet_model::ids::PodUid;

/// Longest wait for something that the kernel does at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The mount of the hierarchy that the event source watches.
pub(crate) fn watched_mount() -> PathBuf {
    let v1 = Path::new("/sys/fs/cgroup/pids");
    if v1.exists() {
        v1.to_owned()
    } else {
        PathBuf::from("/sys/fs/cgroup")
    }
}

/// How a container is cut off from the host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isolation {
    /// A pid namespace of its own.
    OwnPids,
    /// The host's pid namespace, as with `hostPID`.
    HostPids,
}

/// A pod's cgroup; removed with all that runs in it.
pub(crate) struct TestPod {
    pub(crate) uid: PodUid,
    /// As the kubelet names it.
    pub(crate) cgroup: String,
    pub(crate) directory: PathBuf,
}

impl TestPod {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let uid = format!("{}-{number}", std::process::id());
        let cgroup = format!("/swiftlet-pleg-test-{uid}/pod{uid}");
        let directory = watched_mount().join(cgroup.trim_start_matches('/'));
        fs::create_dir_all(&directory).expect("the pod's cgroup can be made");
        Self {
            uid: PodUid::from(uid),
            cgroup,
            directory,
        }
    }

    /// Makes a container's cgroup.
    pub(crate) fn container(&self, id: &str) -> Container {
        let directory = self.directory.join(id);
        fs::create_dir(&directory).expect("the container's cgroup can be made");
        Container {
            directory,
            more: Vec::new(),
        }
    }
}

impl Drop for TestPod {
    fn drop(&mut self) {
        // A runtime makes the same folders in every v1 hierarchy.
        let top = self
            .cgroup
            .trim_start_matches('/')
            .split('/')
            .next()
            .expect("a name");
        let mounts = fs::read_dir("/sys/fs/cgroup").expect("cgroups are mounted");
        let mounts = mounts.filter_map(Result::ok).map(|mount| mount.path());
        for mount in mounts.chain(["/sys/fs/cgroup".into()]) {
            remove_tree(&mount.join(top));
        }
    }
}

/// A container's cgroup.
pub(crate) struct Container {
    pub(crate) directory: PathBuf,
    /// Cgroups of other hierarchies that its processes enter too.
    pub(crate) more: Vec<PathBuf>,
}

impl Container {
    /// Starts `script` as the container's program.
    pub(crate) fn start(&self, isolation: Isolation, script: &str) -> Process {
        let unshare = match isolation {
            Isolation::OwnPids => "exec unshare --pid --fork",
            Isolation::HostPids => "exec unshare --mount",
        };
        // unshare has something to say about children that a signal ends.
        self.run(&format!("{unshare} sh -c '{script}' 2>/dev/null"))
    }

    /// Runs a shell in the cgroup, in the host's namespaces.
    pub(crate) fn run(&self, script: &str) -> Process {
        let enter =
            |directory: &PathBuf| format!("echo 0 > {}/cgroup.procs; ", directory.display());
        let entering: String = [&self.directory]
            .into_iter()
            .chain(&self.more)
            .map(enter)
            .collect();
        let child = Command::new("sh")
            .args(["-c", &format!("set -e; {entering}{script}")])
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell can be started");
        Process { child }
    }

    /// The process that has number 1 in its namespace, by the host's number.
    pub(crate) fn init(&self) -> Pid {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let found = processes(&self.directory).into_iter().find(|process| {
                let status = fs::read_to_string(format!("/proc/{process}/status"));
                let status = status.unwrap_or_default();
                let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
                let mut numbers = numbers.unwrap_or_default().split_whitespace();
                numbers.nth(1) == Some("1")
            });
            if let Some(process) = found {
                return Pid::from_raw(process);
            }
            assert!(
                Instant::now() < give_up,
                "the container has no first process"
            );
            std::thread::yield_now();
        }
    }
}

impl Container {
    /// Whether the process has entered the cgroup.
    pub(crate) fn holds(&self, process: Pid) -> bool {
        processes(&self.directory).contains(&process.as_raw())
    }
}

/// A process that the test started.
pub(crate) struct Process {
    child: Child,
}

impl Process {
    pub(crate) fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"))
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("the child can be asked for")
            .is_some()
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the child can be waited for")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail where the process was waited for, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn processes(cgroup: &Path) -> Vec<i32> {
    let list = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    list.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Kills what is in a cgroup and below it, and removes all.
pub(crate) fn remove_tree(cgroup: &Path) {
    let Ok(entries) = fs::read_dir(cgroup) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let give_up = Instant::now() + PATIENCE;
    while let Err(error) = fs::remove_dir(cgroup) {
        assert!(Instant::now() < give_up, "{}: {error}", cgroup.display());
        for process in processes(cgroup) {
            let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
        }
        std::thread::yield_now();
    }
}
