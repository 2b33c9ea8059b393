//! Probes and termination messages on the whole stack.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{self, LIMIT, is_ready, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// A web server and nothing else.
const HTTPD: &str = "mkdir /tmp/www; echo ok >/tmp/www/index.html; httpd -f -p 8080 -h /tmp/www";

/// A stack, and a folder of the machine whose files are what the probes look for.
struct Bench {
    stack: Stack,
    kubectl: Kubectl,
    flags: tempfile::TempDir,
    _folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
        let flags = tempfile::Builder::new().prefix("swl-flags").tempdir()?;
        let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
        Ok(Self {
            kubectl: stack.kubectl()?,
            stack,
            flags,
            _folder: folder,
        })
    }

    fn raise(&self, flag: &str) -> Result<()> {
        Ok(std::fs::write(self.flags.path().join(flag), "")?)
    }

    fn lower(&self, flag: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.flags.path().join(flag))?)
    }

    fn spec(&self, script: &str, more: Value) -> Value {
        spec(
            &self.stack.options().busybox_image,
            self.flags.path(),
            script,
            more,
        )
    }

    fn pod(&self, name: &str, script: &str, more: Value) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": self.spec(script, more),
        });
        self.kubectl.apply(&pod.to_string())?;
        Ok(())
    }

    fn get(&self, name: &str) -> Option<Value> {
        pods::pod(&self.kubectl, name)
    }

    fn wait(&self, what: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        wait_for(&format!("{name}: {what}"), LIMIT, || {
            self.get(name).filter(&holds)
        })
        .with_context(|| format!("{:?}", self.get(name)))
    }

    fn wait_event(&self, name: &str, words: &str) -> Result<()> {
        wait_for(&format!("{name}: event {words}"), LIMIT, || {
            let events = self.kubectl.json(&["get", "events"]).ok()?;
            let mut all = events["items"].as_array()?.iter();
            all.any(|event| {
                let said = event["message"].as_str().unwrap_or_default();
                event["involvedObject"]["name"] == name && said.contains(words)
            })
            .then_some(())
        })
    }
}

fn spec(image: &str, flags: &Path, script: &str, more: Value) -> Value {
    let mut container = json!({
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "ports": [{"name": "web", "containerPort": 8080}],
        "volumeMounts": [{"name": "flags", "mountPath": "/flags"}],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        container[field] = value.clone();
    }
    json!({
        "terminationGracePeriodSeconds": 1,
        "volumes": [{"name": "flags", "hostPath": {"path": flags}}],
        "containers": [container],
    })
}

/// A probe that looks for a flag each second and fails at once.
fn flag(name: &str) -> Value {
    json!({
        "exec": {"command": ["test", "-f", format!("/flags/{name}")]},
        "periodSeconds": 1,
        "failureThreshold": 1,
    })
}

fn main_of(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

fn ready_since(pod: &Value) -> Option<String> {
    let mut all = pod["status"]["conditions"].as_array()?.iter();
    let ready = all.find(|one| one["type"] == "Ready")?;
    Some(ready["lastTransitionTime"].as_str()?.to_owned())
}

#[test]
fn probes_decide_on_readiness_and_life_and_survive_the_agent() -> Result<()> {
    let mut bench = Bench::new()?;
    http_and_tcp(&bench)?;
    a_deployment_follows(&bench)?;
    life_and_start(&bench)?;
    the_agent_crashes(&mut bench)?;
    bench.kubectl.run(&["delete", "deployment", "web"])?;
    bench
        .kubectl
        .run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&bench.kubectl)
}

fn http_and_tcp(bench: &Bench) -> Result<()> {
    let get = |path: &str| json!({"httpGet": {"path": path, "port": "web"}, "periodSeconds": 1});
    let tcp = |port: u16| json!({"tcpSocket": {"port": port}, "periodSeconds": 1});
    bench.pod("http", HTTPD, json!({"readinessProbe": get("/index.html")}))?;
    bench.pod("missing", HTTPD, json!({"readinessProbe": get("/missing")}))?;
    bench.pod("tcp", HTTPD, json!({"readinessProbe": tcp(8080)}))?;
    bench.pod("closed", HTTPD, json!({"readinessProbe": tcp(8081)}))?;
    bench.wait("ready", "http", is_ready)?;
    bench.wait("ready", "tcp", is_ready)?;
    bench.wait_event(
        "missing",
        "Readiness probe failed: HTTP probe failed with statuscode: 404",
    )?;
    bench.wait_event("closed", "connect: connection refused")?;
    for name in ["missing", "closed"] {
        let pod = bench.get(name).context("the pod")?;
        assert!(!is_ready(&pod), "{pod}");
        assert_eq!(main_of(&pod)["started"], true, "{pod}");
        assert_eq!(pod["status"]["phase"], "Running");
    }
    Ok(())
}

fn a_deployment_follows(bench: &Bench) -> Result<()> {
    let spec = bench.spec("sleep 3600", json!({"readinessProbe": flag("ready")}));
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": spec},
        },
    });
    bench.kubectl.apply(&deployment.to_string())?;
    let available = |wanted: u64| {
        wait_for(&format!("{wanted} available"), LIMIT, || {
            let found = bench.kubectl.json(&["get", "deployment", "web"]).ok()?;
            let status = &found["status"];
            let seen = status["replicas"] == 1;
            let count = status["availableReplicas"].as_u64().unwrap_or_default();
            (seen && count == wanted).then_some(())
        })
    };
    available(0)?;
    bench.raise("ready")?;
    available(1)?;
    bench.lower("ready")?;
    available(0)?;
    bench.raise("ready")?;
    available(1)
}

fn life_and_start(bench: &Bench) -> Result<()> {
    bench.raise("alive")?;
    bench.pod(
        "alive",
        "sleep 3600",
        json!({"livenessProbe": flag("alive")}),
    )?;
    bench.wait("ready", "alive", is_ready)?;
    bench.lower("alive")?;
    bench.wait_event(
        "alive",
        "Container main failed liveness probe, will be restarted",
    )?;
    bench.raise("alive")?;
    let pod = bench.wait("restarted and ready", "alive", |pod| {
        is_ready(pod) && main_of(pod)["restartCount"].as_u64() >= Some(1)
    })?;
    let ended = &main_of(&pod)["lastState"]["terminated"];
    assert_eq!(ended["reason"], "Error", "{pod}");

    let mut startup = flag("started");
    startup["failureThreshold"] = json!(60);
    let probes = json!({"startupProbe": startup, "livenessProbe": flag("started")});
    bench.pod("slow", "sleep 3600", probes)?;
    bench.wait_event("slow", "Startup probe failed: ")?;
    let pod = bench.get("slow").context("the pod")?;
    assert_eq!(main_of(&pod)["started"], false, "{pod}");
    assert!(!is_ready(&pod), "{pod}");
    bench.raise("started")?;
    let pod = bench.wait("ready", "slow", is_ready)?;
    assert_eq!(main_of(&pod)["restartCount"], 0, "liveness waited: {pod}");
    Ok(())
}

/// What was ready stays so, without a moment of doubt, and is asked again.
fn the_agent_crashes(bench: &mut Bench) -> Result<()> {
    let names = ["http", "tcp", "slow"];
    let look = |bench: &Bench| -> Result<Vec<_>> {
        let look = |name: &&str| {
            let pod = bench.get(name).context("the pod")?;
            assert!(is_ready(&pod), "{pod}");
            Ok((ready_since(&pod), main_of(&pod)["containerID"].clone()))
        };
        names.iter().map(look).collect()
    };
    let before = look(bench)?;
    bench.stack.crash_node()?;
    bench.stack.wait_for_node()?;
    // The new agent probes: what it finds is seen.
    bench.lower("alive")?;
    bench.wait("restarted again", "alive", |pod| {
        main_of(pod)["restartCount"].as_u64() >= Some(2)
    })?;
    bench.raise("alive")?;
    assert_eq!(look(bench)?, before);
    Ok(())
}

#[test]
fn the_last_words_of_a_container_reach_the_api() -> Result<()> {
    let bench = Bench::new()?;
    let log = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let path = json!({"terminationMessagePath": "/tmp/words"});
    for (name, script, more, expected) in [
        (
            "file",
            "echo -n bye >/dev/termination-log; exit 3",
            json!({}),
            "bye",
        ),
        ("path", "echo -n here >/tmp/words; exit 0", path, "here"),
        (
            "log",
            "echo first; echo second; exit 1",
            log.clone(),
            "first\nsecond\n",
        ),
    ] {
        let mut spec = bench.spec(script, more);
        spec["restartPolicy"] = json!("Never");
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec,
        });
        bench.kubectl.apply(&pod.to_string())?;
        bench.wait("its last words", name, |pod| {
            main_of(pod)["state"]["terminated"]["message"] == expected
        })?;
    }
    let mut spec = bench.spec("echo fine", log);
    spec["restartPolicy"] = json!("Never");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fine"}, "spec": spec,
    });
    bench.kubectl.apply(&pod.to_string())?;
    let pod = bench.wait("over", "fine", |pod| pod["status"]["phase"] == "Succeeded")?;
    assert_eq!(
        main_of(&pod)["state"]["terminated"]["message"],
        Value::Null,
        "{pod}"
    );
    bench
        .kubectl
        .run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&bench.kubectl)
}
