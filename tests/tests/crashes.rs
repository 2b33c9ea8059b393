//! Kill -9 anything: no container restarts, no pod is lost, Ready does not flip.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use swiftlet_tests::demo::timeline::Watch;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::leftovers::{Machine, addresses_held};
use swiftlet_tests::pods::{LIMIT, containers, manifest, wait_gone, wait_ready};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

const PODS: usize = 5;

/// Long enough for a relist, a status and a lease after each crash.
const SETTLE: Duration = Duration::from_secs(3);

#[test]
fn crashes_of_agents_and_runtime_restart_no_container() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();
    kubectl.apply(&manifest("steady", PODS, &image, "sleep 3600"))?;
    wait_ready(&kubectl, PODS)?;
    let before = containers(&kubectl)?;

    stack.crash_node()?;
    unchanged(&stack, &kubectl, &before, "node agent")?;
    stack.crash_control()?;
    unchanged(&stack, &kubectl, &before, "control plane")?;
    stack.crash_containerd()?;
    unchanged(&stack, &kubectl, &before, "container runtime")?;

    // And everything still works: a new pod starts, an exit is noticed, all can be deleted.
    kubectl.apply(&manifest("later", 1, &image, "sleep 3600"))?;
    wait_ready(&kubectl, PODS + 1)?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

/// The same containers run, with no restart, and no pod was seen as not Ready meanwhile.
fn unchanged(
    stack: &Stack,
    kubectl: &Kubectl,
    before: &swiftlet_tests::pods::Containers,
    who: &str,
) -> Result<()> {
    let watch = Watch::start(kubectl)?;
    stack.wait_for_node()?;
    wait_ready(kubectl, before.len())?;
    std::thread::sleep(SETTLE);
    assert_eq!(&containers(kubectl)?, before, "after a crash of the {who}");
    let flipped: Vec<_> = watch
        .seen()
        .into_iter()
        .filter(|seen| !seen.ready)
        .collect();
    assert!(
        flipped.is_empty(),
        "after a crash of the {who}: {flipped:?}"
    );
    Ok(())
}

#[test]
fn what_ended_while_the_node_agent_was_away_is_found() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();
    kubectl.apply(&manifest("short", 1, &image, "sleep 2; exit 7"))?;
    wait_ready(&kubectl, 1)?;
    stack.kill_node()?;
    std::thread::sleep(SETTLE);
    stack.start_node()?;
    wait_for("the exit code", LIMIT, || {
        let pod = kubectl.json(&["get", "pod", "short-0"]).ok()?;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        (ended["exitCode"] == 7 && pod["status"]["phase"] == "Failed").then_some(())
    })?;
    // A pod that was deleted meanwhile is cleaned up too.
    kubectl.apply(&manifest("doomed", 1, &image, "sleep 3600"))?;
    wait_for("doomed runs", LIMIT, || {
        let pod = kubectl.json(&["get", "pod", "doomed-0"]).ok()?;
        swiftlet_tests::pods::is_ready(&pod).then_some(())
    })?;
    stack.kill_node()?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    stack.start_node()?;
    wait_gone(&kubectl)
}

/// Rounds of the storm: each of the three programs dies twice, at different moments of the starts.
const STORM_ROUNDS: u64 = 6;
/// Pods that are being started when something dies.
const STORM_PODS: usize = 6;

#[test]
fn crashes_in_the_middle_of_starts_lose_no_pod_and_leave_nothing() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let options = StackOptions::new(&folder.path().join("s"));
    let look = || Machine::look(&options.dir, &options.cgroup_root);
    let before = look();
    let mut stack = Stack::start(options.clone())?;
    let kubectl = stack.kubectl()?;
    for round in 0..STORM_ROUNDS {
        let pods = manifest(
            &format!("storm{round}"),
            STORM_PODS,
            &options.busybox_image,
            "sleep 3600",
        );
        // A container that dies with its runtime's call may have run: only a restart brings it
        // back.
        let pods = pods.replace("\"Never\"", "\"Always\"");
        kubectl.with_input(&["create", "-f", "-"], &pods)?;
        std::thread::sleep(Duration::from_millis(20 + 110 * round));
        match round % 3 {
            0 => stack.crash_node()?,
            1 => stack.crash_control()?,
            _ => stack.crash_containerd()?,
        }
        wait_ready(&kubectl, STORM_PODS).with_context(|| format!("round {round}"))?;
        kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
        wait_gone(&kubectl).with_context(|| format!("round {round}"))?;
    }
    wait_for("all addresses free", LIMIT, || {
        addresses_held(&options.dir).is_empty().then_some(())
    })?;
    stack.remove()?;
    let left = look().since(&before);
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

/// A namespace as the runtime names those of sandboxes that it makes.
const LOST_NAMESPACE: &str = "cni-swiftlet-lost";

/// The namespace of a sandbox that its runtime has forgotten.
struct LostNamespace;

impl LostNamespace {
    fn make() -> Result<Self> {
        ip(&["netns", "add", LOST_NAMESPACE])?;
        Ok(Self)
    }

    fn path() -> PathBuf {
        Path::new("/run/netns").join(LOST_NAMESPACE)
    }
}

impl Drop for LostNamespace {
    fn drop(&mut self) {
        // Where all went well it has gone.
        if Self::path().exists() {
            let _ = ip(&["netns", "delete", LOST_NAMESPACE]);
        }
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(words).status().context("ip")?;
    anyhow::ensure!(status.success(), "ip {}: {status}", words.join(" "));
    Ok(())
}

/// What a runtime does that is killed before it has written down the sandbox.
fn attach(stack: &Stack) -> Result<()> {
    let cni = stack.options().dir.join("cni");
    let mut confs = std::fs::read_dir(cni.join("conf"))?;
    let list = confs.next().context("the network's conf")??.path();
    let list: Value = serde_json::from_slice(&std::fs::read(list)?)?;
    let mut conf = list["plugins"][0].clone();
    conf["cniVersion"] = list["cniVersion"].clone();
    conf["name"] = list["name"].clone();
    let mut plugin = Command::new(cni.join("bin/swiftlet-cni"))
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", "lost")
        .env("CNI_NETNS", LostNamespace::path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", cni.join("bin"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("the plugin")?;
    let stdin = plugin.stdin.take().context("its input")?;
    serde_json::to_writer(stdin, &conf)?;
    let output = plugin.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    anyhow::ensure!(output.status.success(), "{said}");
    Ok(())
}

#[test]
fn an_address_that_the_runtime_lost_in_a_crash_is_free_soon_after_its_return() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let options = stack.options().clone();
    kubectl.apply(&manifest("kept", 1, &options.busybox_image, "sleep 3600"))?;
    wait_ready(&kubectl, 1)?;
    let kept = addresses_held(&options.dir);
    let _namespace = LostNamespace::make()?;
    attach(&stack)?;
    assert_eq!(addresses_held(&options.dir).len(), kept.len() + 1);

    stack.crash_containerd()?;
    // Far sooner than two of the looks that are taken now and then.
    wait_for("the pod's address and no other", LIMIT, || {
        (addresses_held(&options.dir) == kept).then_some(())
    })?;
    assert!(!LostNamespace::path().exists(), "its pair went with it");
    wait_ready(&kubectl, 1)?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}
