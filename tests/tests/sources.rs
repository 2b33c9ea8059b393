//! Pods that need no control plane: static pods, and those that it named before it went away.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::mount::umount;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swiftlet_cri::Cri;
use swiftlet_model::runtime::{ContainerState, Runtime, RuntimePod};
use swiftlet_tests::hang::processes_of;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::leftovers::Machine;
use swiftlet_tests::pods::{LIMIT, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// How long the node writes nothing after a change of its pods, and a little more.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(30);

struct Node {
    stack: Stack,
    tokio: tokio::runtime::Runtime,
    runtime: Cri,
    _folder: tempfile::TempDir,
}

impl Node {
    fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
        let mut options = StackOptions::new(&folder.path().join("s"));
        let manifests = options.dir.join("manifests");
        std::fs::create_dir_all(&manifests)?;
        let manifests = manifests.display().to_string();
        options.node_arguments = vec!["--pod-manifest-path".to_owned(), manifests];
        let (stack, tokio) = (Stack::start(options)?, tokio::runtime::Runtime::new()?);
        let runtime = tokio.block_on(async { Cri::new(stack.runtime_socket()) });
        Ok(Self {
            stack,
            tokio,
            runtime,
            _folder: folder,
        })
    }

    /// Writes a manifest as people do who know that files are not written at once.
    fn write(&self, name: &str, script: &str) -> Result<()> {
        let folder = self.stack.options().dir.join("manifests");
        let manifest = pod(name, &self.stack.options().busybox_image, script);
        let unfinished = folder.join(format!(".{name}"));
        std::fs::write(&unfinished, manifest.to_string())?;
        std::fs::rename(unfinished, folder.join(format!("{name}.json")))?;
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let folder = self.stack.options().dir.join("manifests");
        Ok(std::fs::remove_file(folder.join(format!("{name}.json")))?)
    }

    fn runtime_pods(&self) -> Result<Vec<RuntimePod>> {
        Ok(self.tokio.block_on(self.runtime.list_pods())?)
    }

    /// The uid of the running pod of this name.
    fn running(&self, name: &str) -> Option<String> {
        let pods = self.runtime_pods().ok()?;
        let mut pods = pods.into_iter().filter(|one| one.pod.name == name);
        let runs = |one: &RuntimePod| {
            let mut containers = one.containers.iter();
            containers.any(|container| container.state == ContainerState::Running)
        };
        pods.find(runs).map(|one| one.pod.uid.to_string())
    }

    fn wait_running(&self, name: &str) -> Result<String> {
        wait_for(&format!("{name} to run"), LIMIT, || self.running(name))
    }

    fn wait_ended(&self, name: &str) -> Result<()> {
        wait_for(&format!("nothing of {name}"), LIMIT, || {
            let pods = self.runtime_pods().ok()?;
            (!pods.iter().any(|one| one.pod.name == name)).then_some(())
        })
    }

    /// Where the pod sees its token, on the node.
    fn access(&self, uid: &str) -> Result<PathBuf> {
        let pod = self.stack.options().dir.join("node/pods").join(uid);
        let volumes = std::fs::read_dir(pod.join("volumes/kubernetes.io~projected"))?;
        let mut volumes = volumes.filter_map(|volume| Some(volume.ok()?.path()));
        volumes.next().context("a volume with a token")
    }

    /// What a reboot does: no process of a pod is left, and nothing that lay in memory.
    fn reboot(&self, access: &Path) -> Result<()> {
        for pod in self.runtime_pods()? {
            for process in processes_of(pod.pod.uid.as_str()) {
                kill(Pid::from_raw(process), Signal::SIGKILL).ok();
            }
        }
        wait_for("no container to run", LIMIT, || {
            let pods = self.runtime_pods().ok()?;
            let mut all = pods.iter().flat_map(|pod| &pod.containers);
            let runs = all.any(|one| one.state == ContainerState::Running);
            (!runs).then_some(())
        })?;
        Ok(umount(access)?)
    }
}

fn pod(name: &str, image: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", script],
            }],
        },
    })
}

fn mirror(kubectl: &Kubectl, name: &str) -> Option<Value> {
    kubectl.json(&["get", "pod", name]).ok()
}

/// Waits for a mirror pod that is not the one of this uid, and shows a running pod.
fn wait_shown(kubectl: &Kubectl, name: &str, not: &str) -> Result<String> {
    wait_for(&format!("{name} in the API"), LIMIT, || {
        let pod = mirror(kubectl, name)?;
        let uid = pod["metadata"]["uid"].as_str()?.to_owned();
        (uid != not && pod["status"]["phase"] == "Running").then_some(uid)
    })
}

#[test]
fn a_static_pod_lives_by_its_file_and_is_shown_in_the_api() -> Result<()> {
    let node = Node::start()?;
    let kubectl = node.stack.kubectl()?;
    let options = node.stack.options().clone();
    let machine = || Machine::look(&options.dir, &options.cgroup_root);
    // The first pod makes what stays as long as the node: the bridge, the QoS cgroups.
    node.write("first", "sleep 3600")?;
    let first = format!("first-{}", options.node_name);
    node.wait_running(&first)?;
    node.remove("first")?;
    node.wait_ended(&first)?;
    wait_gone(&kubectl)?;
    let before = machine();
    let start = Instant::now();
    node.write("web", "sleep 3600")?;
    let name = format!("web-{}", options.node_name);
    let uid = node.wait_running(&name)?;
    println!("file to running container: {:?}", start.elapsed());
    let shown = wait_shown(&kubectl, &name, "")?;
    assert_ne!(shown, uid);
    let pod = mirror(&kubectl, &name).context("the mirror pod")?;
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.mirror"], *uid);
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["name"]),
        (&json!("Node"), &json!(options.node_name))
    );

    // Somebody deletes what the API shows: the pod goes on, and is shown again.
    kubectl.run(&["delete", "pod", &name, "--wait=false"])?;
    wait_shown(&kubectl, &name, &shown)?;
    assert_eq!(node.running(&name).as_deref(), Some(uid.as_str()));

    // Another content is another pod.
    node.write("web", "sleep 3601")?;
    let next = wait_for("the changed pod", LIMIT, || {
        node.running(&name).filter(|now| *now != uid)
    })?;
    wait_for("its picture", LIMIT, || {
        let pod = mirror(&kubectl, &name)?;
        let hash = &pod["metadata"]["annotations"]["kubernetes.io/config.mirror"];
        (*hash == *next).then_some(())
    })?;

    node.remove("web")?;
    node.wait_ended(&name)?;
    wait_gone(&kubectl)?;
    let traces = || machine().since(&before);
    let none = wait_for("no trace of the pod", LIMIT, || {
        traces().is_empty().then_some(())
    });
    none.with_context(|| format!("left: {:?}", traces()))
}

#[test]
fn without_a_control_plane_static_pods_run_and_known_pods_come_back() -> Result<()> {
    let mut node = Node::start()?;
    let kubectl = node.stack.kubectl()?;
    let image = node.stack.options().busybox_image.clone();
    let mut with_token = pod("kept", &image, "sleep 3600");
    with_token["spec"]["automountServiceAccountToken"] = json!(true);
    kubectl.apply(&with_token.to_string())?;
    kubectl.apply(&pod("deleted", &image, "sleep 3600").to_string())?;
    let (kept, _) = (node.wait_running("kept")?, node.wait_running("deleted")?);
    let access = node.access(&kept)?;
    let token = || std::fs::read_to_string(access.join("token"));
    token().context("the token of a pod that says nothing of it")?;
    wait_checkpoint(&node.stack.options().dir, 2)?;

    node.stack.kill_control()?;
    node.stack.kill_node()?;
    node.reboot(&access)?;
    node.write("alone", "sleep 3600")?;
    let start = Instant::now();
    node.stack.start_node()?;
    let alone = format!("alone-{}", node.stack.options().node_name);
    node.wait_running(&alone)?;
    println!("agent to a static pod's container: {:?}", start.elapsed());
    assert_eq!(node.wait_running("kept")?, kept);
    println!("agent to a known pod's container: {:?}", start.elapsed());
    node.wait_running("deleted")?;
    assert!(token().is_err(), "nobody can have given one");
    assert_eq!(
        std::fs::read_to_string(access.join("namespace"))?,
        "default"
    );

    // The control plane is back, and somebody deletes one of them.
    node.stack.restart_control()?;
    wait_for("the token", LIMIT, || token().ok())?;
    assert!(access.join("ca.crt").exists());
    wait_for("the Event", LIMIT, || {
        let events = kubectl.json(&["get", "events"]).ok()?;
        let mut events = events["items"].as_array()?.iter();
        let lacks = |event: &Value| event["message"].as_str()?.find("lacks its token");
        events.any(|event| lacks(event).is_some()).then_some(())
    })?;
    kubectl.run(&["delete", "pod", "deleted"])?;
    node.wait_ended("deleted")?;
    wait_shown(&kubectl, &alone, "")?;
    assert_eq!(node.running("kept"), Some(kept));
    node.remove("alone")?;
    node.wait_ended(&alone)?;
    Ok(())
}

/// Waits until the node has written its pods, running.
fn wait_checkpoint(dir: &Path, pods: usize) -> Result<()> {
    let path = dir.join("node/checkpoints/last-known-pods");
    wait_for("the checkpoint", CHECKPOINT_WAIT, || {
        let text = std::fs::read_to_string(&path).ok()?;
        let known = text
            .lines()
            .skip(1)
            .filter(|line| line.contains("\"Running\""));
        (known.count() == pods).then_some(())
    })
}
