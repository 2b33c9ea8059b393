//! An exit that the OOM killer caused says so.

use std::fs;
use std::path::{Path, PathBuf};

use swiftlet_model::lifecycle::KernelExit;

use crate::container::{Container, Isolation, PATIENCE, TestPod, remove_tree, watched_mount};
use crate::source::Source;

/// Enough for a shell, not for a program that wants everything.
const LIMIT_BYTES: &str = "16777216";

/// A memory cgroup of the container's own on v1; the limit alone on v2.
struct Limit {
    folder: Option<PathBuf>,
}

impl Limit {
    fn new(pod: &TestPod, container: &mut Container) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if v1.exists() {
            let name = container
                .directory
                .file_name()
                .expect("a name")
                .to_string_lossy();
            let folder = v1.join(format!("swiftlet-pleg-test-{}-{name}", pod.uid));
            fs::create_dir(&folder).expect("a memory cgroup can be made");
            fs::write(folder.join("memory.limit_in_bytes"), LIMIT_BYTES).expect("a limit");
            container.more.push(folder.clone());
            return Self {
                folder: Some(folder),
            };
        }
        Self::unified(pod, container)
    }

    /// As a runtime lays it out: on v1 the same folders in the memory hierarchy.
    fn beside(pod: &TestPod, container: &mut Container) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        if !v1.exists() {
            return Self::unified(pod, container);
        }
        let name = container.directory.file_name().expect("a name");
        let folder = v1.join(pod.cgroup.trim_start_matches('/')).join(name);
        fs::create_dir_all(&folder).expect("a memory cgroup can be made");
        fs::write(folder.join("memory.limit_in_bytes"), LIMIT_BYTES).expect("a limit");
        container.more.push(folder);
        // The pod removes its folders of all hierarchies.
        Self { folder: None }
    }

    fn unified(pod: &TestPod, container: &Container) -> Self {
        let above = [
            watched_mount(),
            pod.directory.join(".."),
            pod.directory.clone(),
        ];
        for folder in above {
            let control = folder.join("cgroup.subtree_control");
            fs::write(control, "+memory").expect("memory can be limited here");
        }
        fs::write(container.directory.join("memory.max"), LIMIT_BYTES).expect("a limit");
        Self { folder: None }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            remove_tree(folder);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_an_oom_killed_container_says_so() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let mut container = pod.container("victim");
    let _limit = Limit::new(&pod, &mut container);
    let process = container.start(Isolation::OwnPids, "exec tail /dev/zero");
    source.expect_started(&pod, "victim").await;
    let exit = source.expect_died(&pod, "victim").await;
    assert_eq!(
        exit,
        KernelExit {
            code: 137,
            signal: 9,
            oom_killed: true
        }
    );
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_outlives_an_oom_killed_child_says_so_when_it_ends() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let mut container = pod.container("parent");
    let _limit = Limit::new(&pod, &mut container);
    let process = container.start(Isolation::OwnPids, "tail /dev/zero; exit 3");
    source.expect_started(&pod, "parent").await;
    let exit = source.expect_died(&pod, "parent").await;
    assert_eq!(
        exit,
        KernelExit {
            code: 3,
            signal: 0,
            oom_killed: true
        }
    );
    process.wait();
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_oom_kill_from_before_the_agent_ran_is_read_before_the_cgroup_goes() {
    let pod = TestPod::new();
    let mut container = pod.container("parent");
    let _limit = Limit::beside(&pod, &mut container);
    let marker = std::env::temp_dir().join(format!("swiftlet-pleg-oom-{}", pod.uid));
    let script = format!(
        "tail /dev/zero; touch {0}; while test -e {0}; do sleep 0.01; done; exit 3",
        marker.display()
    );
    let process = container.start(Isolation::HostPids, &script);
    let give_up = std::time::Instant::now() + PATIENCE;
    while !marker.exists() {
        assert!(std::time::Instant::now() < give_up, "the child is killed");
        std::thread::yield_now();
    }
    let mut source = Source::tracking(&pod);
    fs::remove_file(&marker).expect("it is there");
    let exit = source.expect_died(&pod, "parent").await;
    assert_eq!(
        exit,
        KernelExit {
            code: 3,
            signal: 0,
            oom_killed: true
        }
    );
    process.wait();
}
