//! Exit codes, bursts and cycles on the whole stack.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use swiftlet_tests::leftovers::{Machine, addresses_held, runtime_objects};
use swiftlet_tests::pods::{LIMIT, manifest, wait_gone, wait_ready};
use swiftlet_tests::process::{Process, wait_for};
use swiftlet_tests::stack::{Stack, StackOptions};

/// Cycles of create and delete.
const CYCLES: usize = 100;
/// Cycles after which memory is compared: allocators and caches have settled.
const WARM_UP: usize = 40;
/// How much a process may have grown between the two moments, in KiB: noise of the allocator.
const GROWTH_KIB_MAX: u64 = 4096;

fn stack(events: &str) -> Result<(tempfile::TempDir, Stack)> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut options = StackOptions::new(&folder.path().join("s"));
    events.clone_into(&mut options.events);
    Ok((folder, Stack::start(options)?))
}

#[test]
fn every_exit_code_reaches_the_api_as_it_was() -> Result<()> {
    for events in ["auto", "runtime", "pidfd", "relist"] {
        let (_folder, stack) = stack(events)?;
        exit_codes(&stack).with_context(|| format!("--events={events}"))?;
        let node = stack
            .kubectl()?
            .json(&["get", "node", &stack.options().node_name])?;
        let conditions = node["status"]["conditions"]
            .as_array()
            .context("conditions")?;
        let told = conditions
            .iter()
            .find(|one| one["type"] == "LifecycleEventsFromKernel");
        let told = told.context("the condition")?;
        let kernel = if events == "auto" { "True" } else { "False" };
        assert_eq!(told["status"], kernel, "{node}");
        let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str();
        // Its first version with a stream of events is 1.7.
        let mute = runtime.is_some_and(|version| version.starts_with("containerd://1.6"));
        let source = match events {
            "auto" => "reported by the kernel",
            "runtime" if !mute => "told by the runtime's event stream",
            "pidfd" => "told by pidfds",
            _ => "told by a relist each second",
        };
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.contains(source), "{message}");
    }
    Ok(())
}

fn exit_codes(stack: &Stack) -> Result<()> {
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    let cases = BTreeMap::from([
        ("zero", ("exit 0", 0, "Completed", "Succeeded")),
        ("one", ("exit 1", 1, "Error", "Failed")),
        ("seven", ("sleep 0.2; exit 7", 7, "Error", "Failed")),
        ("max", ("exit 255", 255, "Error", "Failed")),
        // A shell as process 1 is not killed by its own SIGKILL: it tells what its child died of.
        // Kubernetes makes one `$` of two.
        (
            "signal",
            ("sh -c 'kill -9 $$$$'; exit $?", 137, "Error", "Failed"),
        ),
    ]);
    for (name, (script, ..)) in &cases {
        kubectl.apply(&manifest(name, 1, image, script))?;
    }
    for (name, (_, code, reason, phase)) in &cases {
        let pod = wait_for(name, LIMIT, || {
            let pod = kubectl.json(&["get", "pod", &format!("{name}-0")]).ok()?;
            pod["status"]["phase"]
                .as_str()
                .filter(|phase| *phase != "Pending" && *phase != "Running")?;
            Some(pod)
        })?;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], *code, "{name}: {pod}");
        assert_eq!(pod["status"]["phase"], *phase, "{name}: {pod}");
        wait_for("the runtime's reason", LIMIT, || {
            let pod = kubectl.json(&["get", "pod", &format!("{name}-0")]).ok()?;
            let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            (ended["reason"] == *reason).then_some(())
        })?;
    }
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

#[test]
fn thirty_pods_at_once_become_ready_and_go() -> Result<()> {
    let (_folder, stack) = stack("auto")?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    kubectl.apply(&manifest("burst", 30, image, "sleep 3600"))?;
    wait_ready(&kubectl, 30)?;
    let pods = kubectl.json(&["get", "pods"])?;
    let ips: std::collections::BTreeSet<_> = pods["items"]
        .as_array()
        .context("items")?
        .iter()
        .map(|pod| pod["status"]["podIP"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(ips.len(), 30, "each pod has an address of its own: {ips:?}");
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

#[test]
fn a_hundred_cycles_leave_nothing_and_grow_nothing() -> Result<()> {
    let (_folder, stack) = stack("auto")?;
    let kubectl = stack.kubectl()?;
    let options = stack.options().clone();
    let look = || Machine::look(&options.dir, &options.cgroup_root);
    // The first pod makes what stays as long as the node: the bridge, the QoS cgroups.
    cycle(&stack, 0)?;
    let before = look();
    let mut warm = (0, 0);
    for number in 1..CYCLES {
        cycle(&stack, number)?;
        if number == WARM_UP {
            warm = memory(&stack)?;
        }
    }
    // Namespaces and interfaces are closed by the kernel in the background.
    wait_for("nothing is left", LIMIT, || {
        look().since(&before).is_empty().then_some(())
    })
    .with_context(|| format!("left: {:?}", look().since(&before)))?;
    let addresses = addresses_held(&options.dir);
    assert!(addresses.is_empty(), "{addresses:?}");
    let objects = runtime_objects(&stack.runtime_socket())?;
    assert!(objects.is_empty(), "{objects:?}");
    let end = memory(&stack)?;
    println!(
        "control {} -> {} KiB, node {} -> {} KiB",
        warm.0, end.0, warm.1, end.1
    );
    assert!(
        end.0 < warm.0 + GROWTH_KIB_MAX && end.1 < warm.1 + GROWTH_KIB_MAX,
        "{warm:?} {end:?}"
    );
    drop(kubectl);
    Ok(())
}

fn cycle(stack: &Stack, number: usize) -> Result<()> {
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    kubectl.with_input(
        &["create", "-f", "-"],
        &manifest(&format!("cycle{number}"), 1, image, "sleep 3600"),
    )?;
    kubectl.run(&[
        "wait",
        &format!("pod/cycle{number}-0"),
        "--for=condition=Ready",
        "--timeout=60s",
    ])?;
    kubectl.run(&["delete", "pod", &format!("cycle{number}-0"), "--wait=true"])?;
    Ok(())
}

/// Resident memory of control plane and node, in KiB.
fn memory(stack: &Stack) -> Result<(u64, u64)> {
    let of = |process: Option<&Process>| process.and_then(Process::rss_kib).context("it runs");
    Ok((of(stack.control())?, of(stack.node())?))
}
