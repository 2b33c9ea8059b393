//! CPU, memory and disk of pods on the whole stack: who is refused, what the kernel is told, who is
//! killed, who is evicted, who grows.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{self, LIMIT, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// A pod with one container `main`.
fn pod(name: &str, image: &str, script: &str, resources: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{restartPolicy: Never, \
         terminationGracePeriodSeconds: 1, {more} containers: [{{name: main, image: '{image}', \
         imagePullPolicy: IfNotPresent, command: [sh, -c, '{script}'], resources: {resources}, \
         volumeMounts: [{{name: data, mountPath: /data}}]}}], \
         volumes: [{{name: data, emptyDir: {{sizeLimit: 1Mi}}}}]}}}}"
    )
}

/// Waits until the pod's phase is this.
fn wait_phase(kubectl: &Kubectl, name: &str, phase: &str) -> Result<Value> {
    wait_for(&format!("{name} {phase}"), LIMIT, || {
        pods::pod(kubectl, name).filter(|pod| pod["status"]["phase"] == phase)
    })
    .with_context(|| {
        let events = kubectl.run(&["get", "events"]).unwrap_or_default();
        format!("{:?}\n{events}", pods::pod(kubectl, name))
    })
}

/// Files of this name that say something of the pod's own cgroup.
fn cgroup_file(root: &str, uid: &str, file: &str) -> Option<String> {
    let mounts = std::fs::read_dir("/sys/fs/cgroup").ok()?.flatten();
    let mounts = mounts.map(|mount| mount.path());
    let mut all = mounts.chain([PathBuf::from("/sys/fs/cgroup")]);
    all.find_map(|mount| {
        let root = mount.join(root.trim_matches('/'));
        ["", "burstable", "besteffort"].iter().find_map(|class| {
            let path: &Path = &root.join(class).join(format!("pod{uid}")).join(file);
            std::fs::read_to_string(path).ok()
        })
    })
    .map(|text| text.trim().to_owned())
}

fn is_v2() -> bool {
    Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
}

#[test]
fn a_pod_gets_what_it_asked_for_and_no_more() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    refused(&stack, &kubectl)?;
    let limited = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}";
    kubectl.apply(&pod("limited", image, "sleep 3600", limited, ""))?;
    // A shell that holds 64 MiB in a variable, in a container that may have 32.
    let eats = "x=$(head -c 67108864 /dev/zero | tr \"\\\\000\" a); echo ${#x}";
    let small = "{limits: {memory: 32Mi}}";
    kubectl.apply(&pod("eats", image, eats, small, ""))?;
    let fills = "head -c 4194304 /dev/zero > /data/file; sync; sleep 3600";
    kubectl.apply(&pod("fills", image, fills, "{}", ""))?;
    // Its own root counts as well as its volumes.
    let writes = "head -c 4194304 /dev/zero > /tmp/file; sync; sleep 3600";
    let disk = "{limits: {ephemeral-storage: 2Mi}}";
    kubectl.apply(&pod("writes", image, writes, disk, ""))?;
    limits_on_disk(&stack, &kubectl)?;
    resized(&stack, &kubectl)?;
    let eaten = wait_phase(&kubectl, "eats", "Failed")?;
    wait_for("the kernel's reason", LIMIT, || {
        let pod = pods::pod(&kubectl, "eats")?;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        (ended["reason"] == "OOMKilled").then_some(())
    })
    .with_context(|| format!("{eaten}"))?;
    let full = wait_phase(&kubectl, "fills", "Failed")?;
    assert_eq!(full["status"]["reason"], "Evicted", "{full}");
    assert_eq!(
        full["status"]["message"],
        "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "
    );
    let layer = wait_phase(&kubectl, "writes", "Failed")?;
    assert_eq!(
        layer["status"]["message"],
        "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
    );
    let conditions = full["status"]["conditions"].as_array().context("a list")?;
    let target = conditions
        .iter()
        .find(|one| one["type"] == "DisruptionTarget");
    assert_eq!(
        target.context("the condition")?["reason"],
        "TerminationByKubelet"
    );
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

/// A pod that names the node by hand is looked at by the node alone.
fn refused(stack: &Stack, kubectl: &Kubectl) -> Result<()> {
    let (image, node) = (&stack.options().busybox_image, &stack.options().node_name);
    let by_hand = format!("nodeName: {node},");
    kubectl.apply(&pod(
        "big",
        image,
        "true",
        "{requests: {cpu: \"9999\"}}",
        &by_hand,
    ))?;
    let big = wait_phase(kubectl, "big", "Failed")?;
    assert_eq!(big["status"]["reason"], "OutOfcpu", "{big}");
    let message = big["status"]["message"].as_str().unwrap_or_default();
    let words =
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 9999000, used:";
    assert!(message.starts_with(words), "{message}");
    Ok(())
}

fn limits_on_disk(stack: &Stack, kubectl: &Kubectl) -> Result<()> {
    let limited = wait_phase(kubectl, "limited", "Running")?;
    let uid = limited["metadata"]["uid"].as_str().context("a uid")?;
    let expected = if is_v2() {
        [("cpu.max", "20000 100000"), ("memory.max", "67108864")]
    } else {
        [
            ("cpu.cfs_quota_us", "20000"),
            ("memory.limit_in_bytes", "67108864"),
        ]
    };
    for (file, value) in expected {
        let found = cgroup_file(&stack.options().cgroup_root, uid, file);
        assert_eq!(found.as_deref(), Some(value), "{file}");
    }
    let node = kubectl.json(&["get", "node", &stack.options().node_name])?;
    let (all, left) = (&node["status"]["capacity"], &node["status"]["allocatable"]);
    for name in ["cpu", "memory", "ephemeral-storage", "pods"] {
        assert!(
            all[name].is_string() && left[name].is_string(),
            "{name}: {node}"
        );
    }
    assert_ne!(all["memory"], left["memory"], "eviction keeps some free");
    Ok(())
}

/// A pod that grows while it runs, and is not started anew for it.
fn resized(stack: &Stack, kubectl: &Kubectl) -> Result<()> {
    let patch = "{\"spec\":{\"containers\":[{\"name\":\"main\",\"resources\":{\"limits\":\
                 {\"cpu\":\"300m\",\"memory\":\"96Mi\"}}}]}}";
    kubectl.run(&[
        "patch",
        "pod",
        "limited",
        "--subresource=resize",
        "--patch",
        patch,
    ])?;
    let grown = wait_for("the new limits", LIMIT, || {
        let pod = pods::pod(kubectl, "limited")?;
        let status = &pod["status"]["containerStatuses"][0];
        (status["resources"]["limits"]["cpu"] == "300m").then_some(pod)
    })?;
    let uid = grown["metadata"]["uid"].as_str().context("a uid")?;
    let (file, value) = if is_v2() {
        ("memory.max", "100663296")
    } else {
        ("memory.limit_in_bytes", "100663296")
    };
    let root = &stack.options().cgroup_root;
    assert_eq!(cgroup_file(root, uid, file).as_deref(), Some(value));
    let status = &grown["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 0, "{grown}");
    let id = status["containerID"].as_str().unwrap_or_default();
    let id = id.split_once("://").context("an id")?.1;
    let own = cgroup_file(root, uid, &format!("{id}/{file}"));
    assert_eq!(own.as_deref(), Some(value), "the container has it too");
    Ok(())
}
