//! On a folder that only looks like cgroups, and on the machine's own hierarchies.

use std::process::Command;

use super::*;

fn burstable_limits() -> LinuxResources {
    LinuxResources {
        cpu_shares: 512,
        cpu_quota_us: 50_000,
        cpu_period_us: 100_000,
        memory_limit_bytes: 64 << 20,
        ..LinuxResources::default()
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// The machine's hierarchies under a name of the test's own, removed at the end whatever happens.
struct Real(Tree);

impl Real {
    fn new(name: &str) -> Self {
        let hierarchies = cgroup::hierarchies(Path::new(cgroup::MOUNT)).unwrap();
        Self(Tree::new(
            hierarchies,
            &format!("swiftlet-test-{name}-{}", std::process::id()),
        ))
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        self.0.remove_all().unwrap();
    }
}

#[test]
fn a_pod_gets_a_folder_in_every_hierarchy_and_its_limits() {
    let real = Real::new("limits");
    let tree = &real.0;
    let pod = PodUid::from("aa-1");
    for _ in 0..2 {
        let path = tree
            .ensure_pod(&pod, QosClass::Burstable, &burstable_limits())
            .unwrap();
        assert_eq!(path, format!("/{}/burstable/podaa-1", tree.root()));
    }
    let folders = tree.pod_folders(&pod);
    assert_eq!(folders.len(), tree.hierarchies.folders.len());
    let find = |file: &str| {
        folders
            .iter()
            .map(|it| it.join(file))
            .find(|it| it.exists())
    };
    match tree.mode() {
        Mode::V1 => {
            assert_eq!(read(&find("cpu.shares").unwrap()), "512");
            assert_eq!(read(&find("cpu.cfs_quota_us").unwrap()), "50000");
            assert_eq!(read(&find("memory.limit_in_bytes").unwrap()), "67108864");
            assert_ne!(read(&find("cpuset.cpus").unwrap()), "");
            assert_ne!(read(&find("cpuset.mems").unwrap()), "");
        }
        Mode::V2 => {
            assert_eq!(read(&find("cpu.weight").unwrap()), "20");
            assert_eq!(read(&find("cpu.max").unwrap()), "50000 100000");
            assert_eq!(read(&find("memory.max").unwrap()), "67108864");
        }
    }
    assert_eq!(tree.pods().unwrap(), std::slice::from_ref(&pod));
    for _ in 0..2 {
        tree.remove_pod(&pod).unwrap();
    }
    assert!(tree.pods().unwrap().is_empty());
}

#[test]
fn removing_a_pod_kills_what_runs_in_it_and_below() {
    let real = Real::new("kill");
    let tree = &real.0;
    let pod = PodUid::from("bb-2");
    tree.ensure_pod(&pod, QosClass::BestEffort, &LinuxResources::default())
        .unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    for folder in tree.pod_folders(&pod) {
        let below = folder.join("container");
        cgroup::make(&below).unwrap();
        tree.inherit_cpuset(folder.ancestors().nth(3).unwrap(), &below)
            .unwrap();
        cgroup::write(&below.join("cgroup.procs"), &child.id().to_string()).unwrap();
    }
    // Zombies hold no cgroup folder, but somebody must collect ours.
    let collector = thread::spawn(move || child.wait().unwrap());
    tree.remove_pod(&pod).unwrap();
    assert!(!collector.join().unwrap().success());
    assert!(tree.pod_folders(&pod).is_empty());
}

#[test]
fn making_a_pods_cgroups_is_no_cost_that_can_be_felt() {
    const PODS: u32 = 20;
    let real = Real::new("cost");
    let ensure = |number: u32| {
        let pod = PodUid::from(format!("cost-{number}"));
        let before = Instant::now();
        real.0
            .ensure_pod(&pod, QosClass::Burstable, &burstable_limits())
            .unwrap();
        before.elapsed()
    };
    ensure(PODS);
    let mut times: Vec<_> = (0..PODS).map(ensure).collect();
    times.sort();
    let median = times[times.len() / 2];
    println!(
        "ensure_pod: median {median:?}, most {:?}",
        times[times.len() - 1]
    );
    assert!(median < Duration::from_millis(10), "median {median:?}");
}

/// A v2 tree of plain files; the kernel makes the files of a real one.
fn fake_v2(folder: &Path, pod: &str) -> Tree {
    for path in [
        "",
        "kubepods",
        "kubepods/burstable",
        &format!("kubepods/burstable/{pod}"),
    ] {
        let folder = folder.join(path);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("cgroup.controllers"), "cpu memory pids").unwrap();
        for file in [
            "cgroup.subtree_control",
            "cpu.weight",
            "cpu.max",
            "memory.max",
            "pids.max",
        ] {
            std::fs::write(folder.join(file), "").unwrap();
        }
    }
    let hierarchies = Hierarchies {
        mode: Mode::V2,
        folders: vec![folder.to_path_buf()],
    };
    Tree::new(hierarchies, "kubepods")
}

#[test]
fn on_v2_limits_are_weights_and_max_files() {
    let folder = tempfile::tempdir().unwrap();
    let tree = fake_v2(folder.path(), "podcc");
    let path = tree
        .ensure_pod(&"cc".into(), QosClass::Burstable, &burstable_limits())
        .unwrap();
    let pod = folder.path().join(path.trim_start_matches('/'));
    assert_eq!(read(&pod.join("cpu.weight")), "20");
    assert_eq!(read(&pod.join("cpu.max")), "50000 100000");
    assert_eq!(read(&pod.join("memory.max")), "67108864");
    assert_eq!(tree.pods().unwrap(), [PodUid::from("cc")]);
}

#[test]
fn on_v2_controllers_are_handed_down_from_the_mount() {
    let folder = tempfile::tempdir().unwrap();
    let tree = fake_v2(folder.path(), "podcc");
    tree.make_parents(folder.path(), QosClass::Burstable)
        .unwrap();
    for path in ["", "kubepods", "kubepods/burstable"] {
        let file = folder.path().join(path).join("cgroup.subtree_control");
        assert_eq!(read(&file), "+cpu +memory +pids", "{path}");
    }
}

#[test]
fn a_uid_never_leads_out_of_the_tree() {
    let real = Real::new("uid");
    for uid in ["", "../../x", "a/b"] {
        let limits = LinuxResources::default();
        assert!(
            real.0
                .ensure_pod(&uid.into(), QosClass::Guaranteed, &limits)
                .is_err()
        );
        assert!(real.0.remove_pod(&uid.into()).is_err());
    }
}

#[test]
fn a_cpuset_whose_making_was_interrupted_is_finished_and_one_that_is_set_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchy = dir.path().join("cpuset");
    let pods = hierarchy.join("pods");
    for (folder, value) in [
        (pods.clone(), "0-1"),
        (pods.join("podnew"), ""),
        (pods.join("podold"), "1"),
    ] {
        std::fs::create_dir_all(&folder).unwrap();
        for file in CPUSET_FILES {
            std::fs::write(folder.join(file), value).unwrap();
        }
    }
    let hierarchies = Hierarchies {
        mode: Mode::V1,
        folders: vec![hierarchy],
    };
    let tree = Tree::new(hierarchies, "pods");
    for (pod, value) in [("new", "0-1"), ("old", "1")] {
        let limits = LinuxResources::default();
        tree.ensure_pod(&pod.into(), QosClass::Guaranteed, &limits)
            .unwrap();
        let folder = pods.join(format!("pod{pod}"));
        assert_eq!(read(&folder.join("cpuset.cpus")), value);
    }
}
