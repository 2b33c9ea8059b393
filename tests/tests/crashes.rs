//! Kill -9 anything: no container restarts, no pod is lost, Ready does not flip.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
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

/// Rounds until the runtime was killed between a pod's address and its first note of the pod.
const LOST_ROUNDS: usize = 10;
/// What the node says when it frees what the runtime has lost.
const FREED: &str = "attachments of unknown sandboxes freed";

#[test]
fn an_address_that_the_runtime_lost_in_a_crash_is_free_soon_after_its_return() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut options = StackOptions::new(&folder.path().join("s"));
    options.log = "warn,swiftlet_node=info".to_owned();
    let mut stack = Stack::start(options.clone())?;
    let kubectl = stack.kubectl()?;
    for round in 0..LOST_ROUNDS {
        let name = format!("lost{round}");
        let pods = manifest(&name, STORM_PODS, &options.busybox_image, "sleep 3600");
        let pods = pods.replace("\"Never\"", "\"Always\"");
        kubectl.with_input(&["create", "-f", "-"], &pods)?;
        let give_up = Instant::now() + LIMIT;
        while addresses_held(&options.dir).is_empty() {
            anyhow::ensure!(Instant::now() < give_up, "round {round}: no address");
            std::thread::yield_now();
        }
        stack.crash_containerd()?;
        wait_ready(&kubectl, STORM_PODS).with_context(|| format!("round {round}"))?;
        // Far sooner than two of the looks that are taken now and then.
        wait_for("an address for each pod and no other", LIMIT, || {
            (addresses_held(&options.dir).len() == STORM_PODS).then_some(())
        })
        .with_context(|| format!("round {round}"))?;
        kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
        wait_gone(&kubectl).with_context(|| format!("round {round}"))?;
        wait_for("all addresses free", LIMIT, || {
            addresses_held(&options.dir).is_empty().then_some(())
        })?;
        if std::fs::read_to_string(stack.node_log())?.contains(FREED) {
            return Ok(());
        }
    }
    anyhow::bail!("no round lost an address");
}
