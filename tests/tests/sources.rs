//! Pods that need no control plane: static pods, and those that it named before it went away.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_cri::Cri;
use swiftlet_model::runtime::{ContainerState, Runtime, RuntimePod};
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
        Ok(Self {
            stack: Stack::start(options)?,
            tokio: tokio::runtime::Runtime::new()?,
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
        let runtime = Cri::new(self.stack.runtime_socket());
        let list = async { runtime.list_pods().await };
        Ok(self.tokio.block_on(list)?)
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

    /// What a reboot does: the runtime's pods are gone.
    fn lose_runtime_pods(&self) -> Result<()> {
        let runtime = Cri::new(self.stack.runtime_socket());
        for pod in self.runtime_pods()? {
            for sandbox in &pod.sandboxes {
                self.tokio.block_on(async {
                    runtime.stop_sandbox(&sandbox.id).await?;
                    runtime.remove_sandbox(&sandbox.id).await
                })?;
            }
        }
        Ok(())
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
    wait_for("no trace of the pod", LIMIT, || {
        machine().since(&before).is_empty().then_some(())
    })?;
    Ok(())
}

#[test]
fn without_a_control_plane_static_pods_run_and_known_pods_come_back() -> Result<()> {
    let mut node = Node::start()?;
    let kubectl = node.stack.kubectl()?;
    let image = node.stack.options().busybox_image.clone();
    for name in ["kept", "deleted"] {
        kubectl.apply(&pod(name, &image, "sleep 3600").to_string())?;
    }
    let (kept, _) = (node.wait_running("kept")?, node.wait_running("deleted")?);
    wait_checkpoint(&node.stack.options().dir, 2)?;

    node.stack.kill_control()?;
    node.stack.kill_node()?;
    node.lose_runtime_pods()?;
    node.write("alone", "sleep 3600")?;
    node.stack.start_node()?;
    let alone = format!("alone-{}", node.stack.options().node_name);
    node.wait_running(&alone)?;
    assert_eq!(node.wait_running("kept")?, kept);
    node.wait_running("deleted")?;

    // The control plane is back, and somebody deletes one of them.
    node.stack.restart_control()?;
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
