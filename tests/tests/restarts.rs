//! Programs die among pods in all states: every deadline is kept, every exit code is right.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde_json::{Value, json};
use swiftlet_tests::demo::timeline::Watch;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{LIMIT, containers, is_ready, manifest, wait_gone};
use swiftlet_tests::process::{patient, wait_for};
use swiftlet_tests::stack::{Stack, StackOptions};

const STEADY: usize = 20;
const CRASHING: usize = 10;
const ENDING: usize = 10;
const STARTING: usize = 10;

/// Grace period of the pods that do not listen to SIGTERM.
const GRACE: Duration = Duration::from_secs(25);
/// How late such a pod's object may go: its process is killed, its sandbox stopped and removed,
/// with nine others at the same time.
const LATE: Duration = Duration::from_secs(10);
/// How long the agent is away.
const AWAY: Duration = Duration::from_secs(3);
/// Kubernetes' first wait between two starts, in seconds; it doubles with each crash.
const BACK_OFF_S: i64 = 10;
/// Times of containers are in whole seconds in the API.
const ROUNDING_S: i64 = 1;

fn always(pods: &str) -> String {
    pods.replace("\"Never\"", "\"Always\"")
}

#[test]
fn an_agents_restart_among_fifty_pods_in_all_states_changes_none_of_them() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    kubectl.apply(&manifest("steady", STEADY, &image, "sleep 3600"))?;
    kubectl.apply(&manifest("ending", ENDING, &image, deaf))?;
    kubectl.apply(&always(&manifest("crashing", CRASHING, &image, "exit 1")))?;
    let others = |pod: &Value| is_ready(pod) || name(pod).starts_with("crashing");
    wait_for("the first pods", LIMIT, || {
        let pods = pods(&kubectl)?;
        (pods.len() == STEADY + ENDING + CRASHING && pods.iter().all(others)).then_some(())
    })?;
    wait_for("crash loops", LIMIT, || {
        let pods = pods(&kubectl)?;
        let mut looping = pods.iter().filter(|pod| name(pod).starts_with("crashing"));
        looping.all(|pod| restarts(pod) > 0).then_some(())
    })?;
    let before: BTreeMap<_, _> = steady(&kubectl)?;
    let grace = format!("--grace-period={}", GRACE.as_secs());
    let deleted = Instant::now();
    let names: Vec<_> = (0..ENDING).map(|n| format!("pod/ending-{n}")).collect();
    let mut command = vec!["delete", "--wait=false", &grace];
    command.extend(names.iter().map(String::as_str));
    kubectl.run(&command)?;
    kubectl.apply(&manifest("starting", STARTING, &image, "sleep 3600"))?;

    stack.kill_node()?;
    let watch = Watch::start(&kubectl)?;
    std::thread::sleep(AWAY);
    stack.start_node()?;
    stack.wait_for_node()?;

    let mut late = Vec::new();
    wait_for("the starting pods", 2 * LIMIT, || {
        late = pods(&kubectl)?;
        late.retain(|pod| name(pod).starts_with("starting"));
        late.retain(|pod| !is_ready(pod) || restarts(pod) > 0);
        late.is_empty().then_some(())
    })
    .with_context(|| format!("{late:?}"))?;
    keeps_deadlines(&kubectl, deleted)?;
    assert_eq!(steady(&kubectl)?, before, "containers of steady pods");
    let flipped = watch.find(|seen| seen.name.starts_with("steady") && !seen.ready);
    assert!(flipped.is_none(), "{flipped:?}");
    keeps_back_offs(&kubectl)?;
    kubectl.run(&[
        "delete",
        "pods",
        "--all",
        "--wait=false",
        "--grace-period=1",
    ])?;
    wait_gone(&kubectl)
}

/// The pods that do not listen go when their grace period is over: not earlier, not much later.
fn keeps_deadlines(kubectl: &Kubectl, deleted: Instant) -> Result<()> {
    wait_for("ending pods gone", GRACE + LATE, || {
        let left = pods(kubectl)?;
        let ending = left.iter().any(|pod| name(pod).starts_with("ending"));
        let early = GRACE.saturating_sub(Duration::from_secs(1));
        match (ending, deleted.elapsed() < early) {
            (true, true) => None,
            (true, false) => (deleted.elapsed() > patient(GRACE + LATE)).then(|| bail!("too late")),
            (false, true) => Some(Err(anyhow::anyhow!("gone after {:?}", deleted.elapsed()))),
            (false, false) => Some(Ok(())),
        }
    })?
}

/// No container was started before its back-off was over, whoever was away meanwhile.
fn keeps_back_offs(kubectl: &Kubectl) -> Result<()> {
    for pod in pods(kubectl).context("pods")? {
        if !name(&pod).starts_with("crashing") {
            continue;
        }
        let status = &pod["status"]["containerStatuses"][0];
        let at = |value: &Value| {
            value
                .as_str()
                .and_then(|text| text.parse::<Timestamp>().ok())
        };
        let states = [&status["state"]["running"], &status["state"]["terminated"]];
        let started = states.iter().find_map(|state| at(&state["startedAt"]));
        let ended = at(&status["lastState"]["terminated"]["finishedAt"]);
        // A container that waits has its newest end as its last state.
        let (Some(started), Some(ended)) = (started, ended) else {
            continue;
        };
        // The first restart does not wait.
        let doublings = u32::try_from(restarts(&pod))?.checked_sub(2);
        let wait_s = doublings.map_or(0, |doublings| BACK_OFF_S << doublings.min(4));
        let waited_s = started.duration_since(ended).as_secs();
        assert!(waited_s >= wait_s - ROUNDING_S, "{status}");
    }
    Ok(())
}

/// Pods that end while the runtime's daemon is away.
const EXITING: usize = 20;

#[test]
fn exit_codes_are_right_though_the_runtime_dies_while_containers_end() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let mut stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();
    let signal = folder.path().join("go");
    std::fs::create_dir(&signal)?;
    let pods_json: Vec<_> = (0..EXITING)
        .map(|number| exiting(number, &image, &signal.display().to_string()).to_string())
        .collect();
    kubectl.apply(&pods_json.join("\n"))?;
    wait_for("all run", LIMIT, || {
        pods(&kubectl)?.iter().all(is_ready).then_some(())
    })?;
    // They end within a second, some before the daemon dies, some while it is away.
    std::fs::write(signal.join("now"), "")?;
    std::thread::sleep(Duration::from_millis(300));
    stack.crash_containerd()?;
    wait_for("all ended", LIMIT, || {
        let pods = pods(&kubectl)?;
        let over = |pod: &Value| {
            matches!(
                pod["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            )
        };
        pods.iter().all(over).then_some(())
    })?;
    for pod in pods(&kubectl).context("pods")? {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        let number: i64 = name(&pod).trim_start_matches("exit-").parse()?;
        assert_eq!(ended["exitCode"], number, "{}", pod["status"]);
        let (reason, phase) = if number == 0 {
            ("Completed", "Succeeded")
        } else {
            ("Error", "Failed")
        };
        assert_eq!(ended["reason"], reason, "{ended}");
        assert_eq!(pod["status"]["phase"], phase);
    }
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

/// A pod that ends with its number soon after the file appears.
fn exiting(number: usize, image: &str, signal: &str) -> Value {
    let pause = format!("0.{:02}", 5 * number);
    let script = format!("until [ -e /go/now ]; do sleep 0.05; done; sleep {pause}; exit {number}");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": format!("exit-{number}")},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": image,
                "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "go", "mountPath": "/go"}],
            }],
            "volumes": [{"name": "go", "hostPath": {"path": signal}}],
        },
    })
}

fn pods(kubectl: &Kubectl) -> Option<Vec<Value>> {
    let list = kubectl.json(&["get", "pods"]).ok()?;
    list["items"].as_array().cloned()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn restarts(pod: &Value) -> u64 {
    let status = &pod["status"]["containerStatuses"][0];
    status["restartCount"].as_u64().unwrap_or_default()
}

fn steady(kubectl: &Kubectl) -> Result<BTreeMap<String, (String, u64)>> {
    let mut all = containers(kubectl)?;
    all.retain(|name, _| name.starts_with("steady"));
    Ok(all)
}
