//! What evictions are decided by, read from this machine's kernel and cgroups, whichever version.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use swiftlet_cgroup::{Mode, PodCgroups};
use swiftlet_model::cgroups::{Cgroups, QosClass};
use swiftlet_model::ids::PodUid;
use swiftlet_model::node_stats::NodeStats;
use swiftlet_model::runtime::LinuxResources;
use swiftlet_pressure::{NodePressure, Places};

/// What the hungry container holds, in bytes.
const HELD: u64 = 24 << 20;
/// Longest wait for the kernel; an emulated machine is slow.
const PATIENCE: Duration = Duration::from_mins(2);
/// Pause between two looks.
const POLL: Duration = Duration::from_millis(20);

/// A pod of its own with one container, and who reads it.
struct Bench {
    cgroups: PodCgroups,
    pressure: NodePressure,
    pod: PodUid,
    /// The container's cgroup: one folder on v2, one for each controller on v1.
    container: Vec<PathBuf>,
    child: Option<Child>,
}

impl Bench {
    async fn new(name: &str) -> Self {
        let root = format!("swiftlet-signals-{name}-{}", std::process::id());
        let cgroups = PodCgroups::new(&root).unwrap();
        let pod = PodUid::from(format!("{name}-1"));
        cgroups
            .ensure_pod(&pod, QosClass::Burstable, &LinuxResources::default())
            .await
            .unwrap();
        let counts = |folder: &PathBuf| {
            ["memory.stat", "pids.current"]
                .iter()
                .any(|file| folder.join(file).exists())
        };
        let folders = cgroups.folders(&pod).into_iter().filter(counts);
        let container: Vec<_> = folders.map(|folder| folder.join("main")).collect();
        for folder in &container {
            std::fs::create_dir(folder).unwrap();
        }
        let pressure = NodePressure::new(Places {
            root: PathBuf::from("/var/lib"),
            hierarchies: swiftlet_cgroup::hierarchies().unwrap(),
            cgroup_root: root,
        });
        Self {
            cgroups,
            pressure,
            pod,
            container,
            child: None,
        }
    }

    /// Runs a shell in the container.
    fn run(&mut self, script: &str) {
        let enter = self.container.iter().map(|folder| {
            let file = folder.join("cgroup.procs");
            format!("echo $$ > {}; ", file.display())
        });
        let script = enter.chain([script.to_owned()]).collect::<String>();
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        self.child = Some(quiet.spawn().unwrap());
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Both fail where it has ended already, which is as well.
            let _ = child.kill();
            let _ = child.wait();
        }
        let cgroups = self.cgroups.clone();
        // The test holds a runtime already, and one cannot wait inside another.
        let remove = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.unwrap().block_on(cgroups.remove_all()).unwrap();
        };
        std::thread::spawn(remove).join().unwrap();
    }
}

/// A shell that holds [`HELD`] bytes in a variable and then waits for a child.
fn holds() -> String {
    format!("x=$(head -c {HELD} /dev/zero | tr '\\0' a); sleep 600; echo ${{#x}}")
}

#[tokio::test]
async fn a_pods_memory_and_processes_are_those_of_its_containers() {
    let mut bench = Bench::new("use").await;
    bench.run(&holds());
    let pods = [bench.pod.clone(), PodUid::from("stranger")];
    let used = async {
        loop {
            let memory = bench.pressure.pod_memory(&pods).await.unwrap();
            if memory.get(&bench.pod).is_some_and(|used| *used >= HELD) {
                return memory;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let memory = tokio::time::timeout(PATIENCE, used).await.unwrap();
    assert_eq!(memory.len(), 1, "a pod without a cgroup is left out");
    let containers = bench.pressure.container_memory(&bench.pod).await.unwrap();
    assert!(containers["main"] >= HELD, "{containers:?}");
    let pids = bench.pressure.pod_pids(&pods).await.unwrap();
    assert!((1..10).contains(&pids[&bench.pod]), "{pids:?}");
}

#[tokio::test]
async fn the_node_has_something_left_of_everything() {
    let bench = Bench::new("node").await;
    let memory = bench.pressure.memory().await.unwrap();
    let pids = bench.pressure.pids().await.unwrap();
    let disk = bench.pressure.node_filesystem().await.unwrap();
    for level in [memory, pids, disk.bytes, disk.inodes] {
        assert!(level.available > 0, "{level:?}");
        assert!(level.available < level.capacity, "{level:?}");
    }
    // A folder that is not there yet lies where its parent does.
    let missing = Path::new("/var/lib/not/there/yet");
    let same = bench.pressure.filesystem(missing).await.unwrap();
    assert_eq!(same.id, disk.id);
}

#[tokio::test]
async fn tasks_that_wait_for_memory_are_a_hint() {
    let mut bench = Bench::new("stall").await;
    if bench.cgroups.mode() == Mode::V1 {
        println!("v1 has no pressure files; its eventfd is tried beside its code");
        return;
    }
    let hints = bench.pressure.memory_hints(1 << 20);
    let mut hints = hints.expect("a kernel with cgroup v2 tells of pressure");
    // Above `memory.high` the kernel makes a task wait for each page that it takes.
    std::fs::write(bench.container[0].join("memory.high"), "4194304").unwrap();
    bench.run(&holds());
    let told = tokio::time::timeout(PATIENCE, hints.changed()).await;
    assert!(matches!(told, Ok(Ok(()))), "no hint: {told:?}");
    assert!(*hints.borrow() > 0);
}
