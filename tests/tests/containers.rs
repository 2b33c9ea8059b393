//! The life of containers within a pod, on the whole stack: sidecars, hooks, deadlines, probes and
//! ephemeral containers. One stack for all pods, and all pods at once.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{LIMIT, is_ready, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// A container that writes a line when it starts and when it is told to end.
fn speaker(name: &str, image: &str, log: &str, begin: &str) -> Value {
    let script = format!(
        "echo {name}-up >> /log/{log}; trap 'echo {name}-down >> /log/{log}; exit 0' TERM; {begin} \
         while :; do sleep 0.1; done"
    );
    container(name, image, &script)
}

fn container(name: &str, image: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": image,
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "log", "mountPath": "/log"}],
    })
}

fn pod(name: &str, logs: &Path, policy: &str, containers: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 20,
            "containers": containers,
            "volumes": [{"name": "log", "hostPath": {"path": logs}}],
        },
    })
}

fn sidecar(mut container: Value) -> Value {
    container["restartPolicy"] = "Always".into();
    container
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

fn manifests(image: &str, logs: &Path) -> Vec<Value> {
    let main = |log: &str| speaker("main", image, log, "");
    let mut ordered = pod("ordered", logs, "Always", &[main("ordered")]);
    let begin = "sleep 1; echo second-ready >> /log/ordered; touch /log/ready;";
    let mut second = sidecar(speaker("second", image, "ordered", begin));
    second["startupProbe"] = exec("test -f /log/ready");
    second["startupProbe"]["periodSeconds"] = 1.into();
    second["startupProbe"]["failureThreshold"] = 60.into();
    ordered["spec"]["initContainers"] = json!([
        sidecar(speaker("first", image, "ordered", "")),
        container("once", image, "echo once >> /log/ordered"),
        second,
    ]);
    let job = container("main", image, "sleep 1; exit 0");
    let mut done = pod("done", logs, "Never", &[job]);
    done["spec"]["initContainers"] = json!([sidecar(speaker("beside", image, "done", ""))]);
    let mut hooked = pod("hooked", logs, "Always", &[main("hooked")]);
    hooked["spec"]["containers"][0]["lifecycle"] = json!({
        "postStart": exec("sleep 1; echo post >> /log/hooked"),
        "preStop": exec("echo pre >> /log/hooked; sleep 1"),
    });
    let mut unhooked = pod("unhooked", logs, "Always", &[main("unhooked")]);
    unhooked["spec"]["containers"][0]["lifecycle"] = json!({"postStart": exec("exit 3")});
    let mut late = pod("late", logs, "Always", &[main("late")]);
    late["spec"]["activeDeadlineSeconds"] = 4.into();
    let script = "touch /tmp/alive; sleep 3; rm /tmp/alive; sleep 3600";
    let mut dying = pod("dying", logs, "Always", &[container("main", image, script)]);
    let mut alive = exec("test -f /tmp/alive");
    alive["periodSeconds"] = 1.into();
    alive["failureThreshold"] = 1.into();
    alive["initialDelaySeconds"] = 1.into();
    alive["terminationGracePeriodSeconds"] = 1.into();
    dying["spec"]["containers"][0]["livenessProbe"] = alive;
    vec![ordered, done, hooked, unhooked, late, dying]
}

fn lines(logs: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(logs.join(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the pod is as `seen` wants it.
fn wait_pod<T>(
    kubectl: &Kubectl,
    name: &str,
    what: &str,
    seen: impl Fn(&Value) -> Option<T>,
) -> Result<T> {
    let waited = wait_for(&format!("{name}: {what}"), LIMIT, || {
        seen(&kubectl.json(&["get", "pod", name]).ok()?)
    });
    let pod = || kubectl.run(&["get", "pod", name, "-o", "yaml"]);
    waited.with_context(|| pod().unwrap_or_default())
}

fn has_event(kubectl: &Kubectl, name: &str, reason: &str, message: &str) -> Result<()> {
    let selector = format!("involvedObject.name={name}");
    wait_for(&format!("{name}: event {reason}"), LIMIT, || {
        let events = kubectl
            .json(&["get", "events", "--field-selector", &selector])
            .ok()?;
        let mut all = events["items"].as_array()?.iter();
        all.any(|one| one["reason"] == reason && one["message"] == message)
            .then_some(())
    })
}

fn terminal(kubectl: &Kubectl, name: &str) -> Result<Value> {
    wait_pod(kubectl, name, "a terminal phase", |pod| {
        let phase = pod["status"]["phase"].as_str()?;
        ["Succeeded", "Failed"]
            .contains(&phase)
            .then(|| pod.clone())
    })
}

#[test]
fn containers_of_a_pod_live_as_kubernetes_documents_it() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs)?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();
    let all = manifests(&image, &logs);
    let all: Vec<_> = all.iter().map(Value::to_string).collect();
    kubectl.apply(&all.join("\n"))?;
    let checks = || -> Result<()> {
        ordered_start(&kubectl, &logs, &image)?;
        ends(&kubectl, &logs)?;
        hooks(&kubectl)?;
        kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
        wait_gone(&kubectl)?;
        ordered_stop(&logs);
        Ok(())
    };
    checks().with_context(|| stack.describe())
}

fn ordered_start(kubectl: &Kubectl, logs: &Path, image: &str) -> Result<()> {
    wait_pod(kubectl, "ordered", "Ready", |pod| {
        is_ready(pod).then_some(())
    })?;
    let expected = ["first-up", "once", "second-up", "second-ready", "main-up"];
    assert_eq!(lines(logs, "ordered"), expected);
    let arguments = ["debug", "pod/ordered", "--attach=false", "--container=look"];
    let image = format!("--image={image}");
    let rest = [image.as_str(), "--target=main", "--", "sh", "-c", "exit 5"];
    kubectl.run(&[&arguments[..], &rest[..]].concat())?;
    let code = wait_pod(kubectl, "ordered", "the ephemeral container's end", |pod| {
        let debug = &pod["status"]["ephemeralContainerStatuses"][0];
        debug["state"]["terminated"]["exitCode"].as_i64()
    })?;
    assert_eq!(code, 5);
    let pod = kubectl.json(&["get", "pod", "ordered"])?;
    assert!(
        is_ready(&pod),
        "an ephemeral container does not count: {pod}"
    );
    Ok(())
}

fn ends(kubectl: &Kubectl, logs: &Path) -> Result<()> {
    let done = terminal(kubectl, "done")?;
    assert_eq!(done["status"]["phase"], "Succeeded", "{done}");
    assert_eq!(lines(logs, "done"), ["beside-up", "beside-down"]);
    let late = terminal(kubectl, "late")?;
    assert_eq!(late["status"]["phase"], "Failed", "{late}");
    assert_eq!(late["status"]["reason"], "DeadlineExceeded", "{late}");
    let restarts = wait_pod(kubectl, "dying", "a restart", |pod| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_i64();
        restarts.filter(|count| *count > 0)
    })?;
    assert!(restarts > 0);
    let message = "Container main failed liveness probe, will be restarted";
    has_event(kubectl, "dying", "Killing", message)
}

fn hooks(kubectl: &Kubectl) -> Result<()> {
    wait_pod(kubectl, "hooked", "Ready", |pod| {
        is_ready(pod).then_some(())
    })?;
    has_event(
        kubectl,
        "unhooked",
        "FailedPostStartHook",
        "PostStartHook failed",
    )?;
    wait_pod(kubectl, "unhooked", "its crash loop", |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        (waiting["reason"] == "CrashLoopBackOff").then_some(())
    })
}

fn ordered_stop(logs: &Path) {
    let ordered = lines(logs, "ordered");
    assert_eq!(ordered[5..], ["main-down", "second-down", "first-down"]);
    let hooked = lines(logs, "hooked");
    assert_eq!(hooked, ["main-up", "post", "pre", "main-down"]);
}
