//! What `make demo` shows.

pub mod timeline;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use self::timeline::{Timelines, Watch, milliseconds, now_us, print, read_log};
use crate::kubectl::Kubectl;
use crate::leftovers::Machine;
use crate::process::wait_for;
use crate::stack::{Stack, StackOptions};

/// How long one step may take; far above what any takes, so that a failure ends.
const STEP_LIMIT: Duration = Duration::from_mins(1);

/// Sleeps, but ends at SIGTERM: process 1 has no default action for it.
const SLEEP: &str = "trap exit TERM; sleep 3600 & wait";

/// Runs the whole demonstration in a fresh stack.
pub fn run(mut options: StackOptions) -> Result<()> {
    "info,swiftlet::timeline=debug".clone_into(&mut options.log);
    let (dir, cgroup_root) = (options.dir.clone(), options.cgroup_root.clone());
    let before = Machine::look(&dir, &cgroup_root);
    let started = now_us();
    let mut stack = Stack::start(options)?;
    let ready = milliseconds(now_us(), started);
    step(&format!(
        "stack up, node Ready after {ready} ms: {}",
        stack.describe()
    ));
    let shown = show(&stack);
    let stopped = stack.remove();
    shown?;
    stopped?;
    let left = Machine::look(&dir, &cgroup_root).since(&before);
    if !left.is_empty() {
        bail!("left on the machine:\n  {}", left.join("\n  "));
    }
    step("stopped; nothing is left: no process, interface, namespace, mount, cgroup, nft table");
    Ok(())
}

fn show(stack: &Stack) -> Result<()> {
    let kubectl = stack.kubectl()?;
    let watch = Watch::start(&kubectl)?;
    create_pods(stack, &kubectl, &watch)?;
    ping(stack, &kubectl, &watch)?;
    kill_process(stack, &kubectl, &watch)?;
    kubectl.run(&[
        "delete",
        "deployment/trio",
        "pod/solo",
        "pod/ping",
        "--grace-period=1",
    ])?;
    wait_for("all pods deleted", STEP_LIMIT, || {
        let pods = kubectl.json(&["get", "pods"]).ok()?;
        pods["items"].as_array()?.is_empty().then_some(())
    })?;
    step("deleted pod and deployment");
    Ok(())
}

fn create_pods(stack: &Stack, kubectl: &Kubectl, watch: &Watch) -> Result<()> {
    let image = &stack.options().busybox_image;
    step("kubectl run solo, kubectl create deployment trio --replicas=3");
    kubectl.run(&["run", "solo", "--image", image, "--", "sh", "-c", SLEEP])?;
    let is_ready = |name: &str| watch.find(|seen| seen.name == name && seen.ready);
    wait_for("pod solo Ready", STEP_LIMIT, || is_ready("solo"))?;
    kubectl.run(&[
        "create",
        "deployment",
        "trio",
        "--image",
        image,
        "--replicas",
        "3",
        "--",
        "sh",
        "-c",
        SLEEP,
    ])?;
    kubectl.run(&[
        "wait",
        "deployment/trio",
        "--for=condition=Available",
        "--timeout=60s",
    ])?;
    let mut names = wait_for("three pods of trio Ready", STEP_LIMIT, || {
        let mut names: Vec<String> = watch
            .seen()
            .into_iter()
            .filter(|seen| seen.ready)
            .map(|seen| seen.name)
            .filter(|name| name.starts_with("trio-"))
            .collect();
        names.sort();
        names.dedup();
        (names.len() == 3).then_some(names)
    })?;
    names.insert(0, "solo".to_owned());
    let mut timelines = Timelines::new();
    read_log(&stack.control_log(), &mut timelines)?;
    read_log(&stack.node_log(), &mut timelines)?;
    for name in &names {
        let mut moments = timelines.remove(name).unwrap_or_default();
        if let Some(seen) = is_ready(name) {
            moments.insert("watched".to_owned(), seen.at_us);
        }
        print(name, &moments);
    }
    Ok(())
}

/// One pod pings another: `kubectl exec` is not needed for that.
fn ping(stack: &Stack, kubectl: &Kubectl, watch: &Watch) -> Result<()> {
    let solo = kubectl.json(&["get", "pod", "solo"])?;
    let ip = solo["status"]["podIP"]
        .as_str()
        .context("solo has no podIP")?
        .to_owned();
    let image = &stack.options().busybox_image;
    kubectl.run(&[
        "run",
        "ping",
        "--image",
        image,
        "--restart=Never",
        "--",
        "ping",
        "-c",
        "1",
        "-W",
        "2",
        &ip,
    ])?;
    let end = wait_for("the ping ends", STEP_LIMIT, || {
        watch.find(|seen| seen.name == "ping" && ["Succeeded", "Failed"].contains(&&*seen.phase))
    })?;
    if end.phase != "Succeeded" {
        bail!(
            "pod ping cannot reach pod solo at {ip}: phase {}",
            end.phase
        );
    }
    step(&format!("pod ping reached pod solo at {ip}"));
    Ok(())
}

fn kill_process(stack: &Stack, kubectl: &Kubectl, watch: &Watch) -> Result<()> {
    let pod = kubectl.json(&["get", "pod", "solo"])?;
    let pid = first_process(&stack.options().cgroup_root, &pod)?;
    let killed = now_us();
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    let known = wait_for("the API knows of the exit", STEP_LIMIT, || {
        watch.find(|seen| seen.name == "solo" && seen.exit_code == Some(137))
    })?;
    let back = wait_for("solo runs again", STEP_LIMIT, || {
        watch.find(|seen| seen.name == "solo" && seen.restarts == "1" && seen.ready)
    })?;
    step(&format!(
        "killed process {pid} of solo: exit code 137 in the API after {} ms, running again after {} ms",
        milliseconds(known.at_us, killed),
        milliseconds(back.at_us, killed),
    ));
    Ok(())
}

/// The first process of a pod's first container, by its cgroup.
pub fn first_process(cgroup_root: &str, pod: &serde_json::Value) -> Result<i32> {
    let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
    let id = pod["status"]["containerStatuses"][0]["containerID"]
        .as_str()
        .unwrap_or_default();
    let id = id
        .rsplit('/')
        .next()
        .filter(|id| !id.is_empty())
        .context("no containerID")?;
    for procs in candidates(cgroup_root, uid, id) {
        let text = std::fs::read_to_string(procs).unwrap_or_default();
        if let Some(pid) = text.lines().filter_map(|line| line.parse().ok()).min() {
            return Ok(pid);
        }
    }
    bail!("no process of container {id} of pod {uid}")
}

fn candidates(root: &str, uid: &str, container: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for hierarchy in ["", "pids"] {
        for class in ["", "burstable", "besteffort"] {
            let base = Path::new("/sys/fs/cgroup")
                .join(hierarchy)
                .join(root)
                .join(class);
            found.push(
                base.join(format!("pod{uid}"))
                    .join(container)
                    .join("cgroup.procs"),
            );
        }
    }
    found
}

/// One step, on a line of its own; on a terminal in bold.
fn step(words: &str) {
    if std::io::stdout().is_terminal() {
        println!("\x1b[1m▸ {words}\x1b[0m");
    } else {
        println!("- {words}");
    }
}
