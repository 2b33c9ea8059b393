//! With a real runtime: runc's own processes pass through the container's cgroup, and none is taken
//! for the container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use swiftlet_model::lifecycle::LifecycleKind;

use crate::container::{PATIENCE, TestPod};
use crate::source::Source;

/// Debian's busybox-static, the one program of the image.
const BUSYBOX: &str = "/bin/busybox";

/// Which pid namespace a container gets.
enum Pids {
    Own,
    Host,
    /// That of the process with this file, as with `shareProcessNamespace`.
    Shared(PathBuf),
}

/// runc with state of its own, and an image.
struct Runc {
    folder: PathBuf,
}

impl Runc {
    fn new(pod: &TestPod) -> Self {
        let folder = std::env::temp_dir().join(format!("swiftlet-pleg-runc-{}", pod.uid));
        let programs = folder.join("rootfs/bin");
        fs::create_dir_all(&programs).expect("a root file system");
        fs::copy(BUSYBOX, programs.join("busybox")).expect("busybox-static is installed");
        std::os::unix::fs::symlink("busybox", programs.join("sh")).expect("a link");
        std::os::unix::fs::symlink("busybox", programs.join("sleep")).expect("a link");
        Self { folder }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("runc");
        command
            .arg("--root")
            .arg(self.folder.join("state"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a container below the pod's cgroup; ends when the container does.
    fn run(&self, pod: &TestPod, id: &str, pids: &Pids, script: &str) -> Child {
        let bundle = self.folder.join(id);
        fs::create_dir_all(&bundle).expect("a bundle");
        self.write_config(&bundle, &format!("{}/{id}", pod.cgroup), pids, script);
        let mut command = self.command();
        command.args(["run", "--bundle"]).arg(&bundle).arg(id);
        command.spawn().expect("runc is installed")
    }

    fn write_config(&self, bundle: &Path, cgroup: &str, pids: &Pids, script: &str) {
        let made = self.command().arg("spec").current_dir(bundle).status();
        assert!(made.expect("runc is installed").success());
        let path = bundle.join("config.json");
        let text = fs::read_to_string(&path).expect("runc wrote it");
        let mut config: Value = serde_json::from_str(&text).expect("runc wrote JSON");
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["sh", "-c", script]);
        config["root"]["path"] = json!(self.folder.join("rootfs"));
        config["linux"]["cgroupsPath"] = json!(cgroup);
        let namespaces = config["linux"]["namespaces"]
            .as_array_mut()
            .expect("a list");
        namespaces.retain(|namespace| namespace["type"] != "pid");
        match pids {
            Pids::Own => namespaces.push(json!({"type": "pid"})),
            Pids::Host => (),
            Pids::Shared(path) => namespaces.push(json!({"type": "pid", "path": path})),
        }
        fs::write(path, config.to_string()).expect("the bundle can be written");
    }

    fn call(&self, arguments: &[&str]) {
        let status = self
            .command()
            .args(arguments)
            .status()
            .expect("runc is installed");
        assert!(status.success(), "runc {arguments:?}");
    }

    /// Runs a second program in the container. The kernel tells of the start before runc notes it.
    fn exec_once_it_runs(&self, id: &str) {
        let give_up = Instant::now() + PATIENCE;
        let exec = || {
            self.command()
                .args(["exec", id, "sh", "-c", "exit 5"])
                .output()
        };
        while exec().expect("runc is installed").status.code() != Some(5) {
            assert!(Instant::now() < give_up, "nothing can be run in {id}");
        }
    }

    /// The container's first process, by the host's number.
    fn process(&self, id: &str) -> u64 {
        let output = self
            .command()
            .args(["state", id])
            .output()
            .expect("runc is installed");
        let state: Value = serde_json::from_slice(&output.stdout).expect("runc wrote JSON");
        state["pid"].as_u64().expect("a process id")
    }
}

impl Drop for Runc {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_start_and_end_are_told_and_runcs_are_not() {
    let pod = TestPod::new();
    let runc = Runc::new(&pod);
    let mut source = Source::tracking(&pod);
    for (id, pids) in [("own", Pids::Own), ("host", Pids::Host)] {
        let mut child = runc.run(&pod, id, &pids, "exit 7");
        source.expect_started(&pod, id).await;
        assert_eq!(source.expect_died(&pod, id).await.code, 7);
        assert_eq!(child.wait().expect("runc ends").code(), Some(7));
    }
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_in_a_container_is_not_told() {
    let pod = TestPod::new();
    let runc = Runc::new(&pod);
    let mut source = Source::tracking(&pod);
    for (id, pids) in [("own", Pids::Own), ("host", Pids::Host)] {
        let mut child = runc.run(&pod, id, &pids, "sleep 1000");
        source.expect_started(&pod, id).await;
        runc.exec_once_it_runs(id);
        runc.call(&["kill", id, "KILL"]);
        assert_eq!(source.expect_died(&pod, id).await.code, 137);
        child.wait().expect("runc ends");
    }
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_pid_namespace_has_many_containers() {
    let pod = TestPod::new();
    let runc = Runc::new(&pod);
    let mut source = Source::tracking(&pod);
    let mut sandbox = runc.run(&pod, "sandbox", &Pids::Own, "sleep 1000");
    source.expect_started(&pod, "sandbox").await;
    let namespace = format!("/proc/{}/ns/pid", runc.process("sandbox"));
    let shared = Pids::Shared(namespace.into());
    for (id, code) in [("first", 0), ("second", 9)] {
        let mut child = runc.run(&pod, id, &shared, &format!("exit {code}"));
        source.expect_started(&pod, id).await;
        assert_eq!(source.expect_died(&pod, id).await.code, code);
        child.wait().expect("runc ends");
    }
    runc.call(&["kill", "sandbox", "KILL"]);
    assert_eq!(source.expect_died(&pod, "sandbox").await.code, 137);
    sandbox.wait().expect("runc ends");
    source.expect_nothing_else(&pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_in_the_image_is_a_hint() {
    let pod = TestPod::new();
    let runc = Runc::new(&pod);
    let mut source = Source::tracking(&pod);
    fs::remove_file(runc.folder.join("rootfs/bin/sh")).expect("it is there");
    let mut child = runc.run(&pod, "none", &Pids::Own, "exit 0");
    assert!(!child.wait().expect("runc ends").success());
    // One for each of runc's processes that ended as number 1, and there may be none.
    pod.container("sentinel")
        .run("exec unshare --pid --fork true")
        .wait();
    loop {
        match source.next().await.kind {
            LifecycleKind::Changed => (),
            LifecycleKind::ContainerStarted { container } => {
                assert_eq!(container.as_str(), "sentinel");
                break;
            }
            other @ LifecycleKind::ContainerDied { .. } => panic!("nothing ran: {other:?}"),
        }
    }
}
