//! The real kubectl of several versions against the real stack.

use std::time::Duration;

use anyhow::Result;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::process::wait_for;
use swiftlet_tests::programs;
use swiftlet_tests::stack::{Stack, StackOptions};

const LIMIT: Duration = Duration::from_mins(1);

fn stack() -> Result<(tempfile::TempDir, Stack)> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    Ok((folder, stack))
}

#[test]
fn the_oldest_and_the_newest_kubectl_work_the_same() -> Result<()> {
    let (_folder, stack) = stack()?;
    let all = programs::kubectls()?;
    let ends = [all.first(), all.last()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>();
    assert!(!ends.is_empty(), "no kubectl on this machine");
    for (version, program) in ends {
        println!("kubectl {version}");
        let kubectl = Kubectl::new(program, &stack.kubeconfig());
        bare_pod(&kubectl)?;
        deployment(&kubectl)?;
        apply(&kubectl)?;
        refusals(&kubectl)?;
    }
    Ok(())
}

const REVISION: &str = "jsonpath={.metadata.resourceVersion}";
const IMAGE: &str = "registry.local/busybox:1.35";

/// Sleeps, but ends at SIGTERM: process 1 has no default action, and the grace period is 30 s.
const SLEEP: &str = "trap exit TERM; sleep 3600 & wait";

fn bare_pod(kubectl: &Kubectl) -> Result<()> {
    kubectl.run(&[
        "run", "one", "--image", IMAGE, "--labels", "a=b", "--", "sh", "-c", SLEEP,
    ])?;
    kubectl.run(&["wait", "pod/one", "--for=condition=Ready", "--timeout=60s"])?;
    let wide = kubectl.run(&["get", "pod", "one", "-o", "wide"])?;
    let row = wide.lines().nth(1).unwrap_or_default();
    assert!(
        row.contains("1/1") && row.contains("Running") && row.contains("worker-1"),
        "{wide}"
    );
    let yaml = kubectl.run(&["get", "pod", "one", "-o", "yaml"])?;
    assert!(
        yaml.contains("qosClass: BestEffort") && yaml.contains("podIP:"),
        "{yaml}"
    );
    kubectl.run(&["label", "pod", "one", "tier=front"])?;
    let named = kubectl.run(&["get", "pods", "-l", "a=b,tier=front", "-o", "name"])?;
    assert_eq!(named.trim(), "pod/one");
    let description = kubectl.run(&["describe", "pod", "one"])?;
    for reason in ["Scheduled", "Created", "Started"] {
        assert!(description.contains(reason), "{description}");
    }
    kubectl.run(&["delete", "pod", "one", "--grace-period=1"])?;
    let gone = kubectl.refused(&["get", "pod", "one"])?;
    assert!(gone.contains("pods \"one\" not found"), "{gone}");
    Ok(())
}

fn deployment(kubectl: &Kubectl) -> Result<()> {
    let create = [
        "create",
        "deployment",
        "web",
        "--image",
        IMAGE,
        "--replicas",
        "3",
        "--",
        "sh",
        "-c",
        SLEEP,
    ];
    kubectl.run(&create)?;
    kubectl.run(&[
        "wait",
        "deployment/web",
        "--for=condition=Available",
        "--timeout=60s",
    ])?;
    kubectl.run(&["scale", "deployment/web", "--replicas", "1"])?;
    wait_for("scaled down", LIMIT, || {
        let pods = kubectl
            .run(&["get", "pods", "-l", "app=web", "-o", "name"])
            .ok()?;
        (pods.lines().count() == 1).then_some(())
    })?;
    let before = kubectl.run(&["get", "pods", "-l", "app=web", "-o", "name"])?;
    kubectl.run(&["set", "env", "deployment/web", "COLOUR=blue"])?;
    kubectl.run(&["rollout", "status", "deployment/web", "--timeout=60s"])?;
    wait_for("the old pod is gone", LIMIT, || {
        let pods = kubectl
            .run(&["get", "pods", "-l", "app=web", "-o", "name"])
            .ok()?;
        (pods.lines().count() == 1 && pods != before).then_some(())
    })?;
    let table = kubectl.run(&["get", "deployments"])?;
    assert!(table.contains("1/1"), "{table}");
    kubectl.run(&["describe", "deployment", "web"])?;
    kubectl.run(&["delete", "deployment", "web"])?;
    wait_for("owned pods are collected", LIMIT, || {
        let pods = kubectl
            .run(&["get", "pods,replicasets", "-l", "app=web", "-o", "name"])
            .ok()?;
        pods.is_empty().then_some(())
    })
}

fn apply(kubectl: &Kubectl) -> Result<()> {
    let manifest = |value: &str| {
        format!(
            r#"
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings}}
data: {{key: {value}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: reader}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'test "$KEY" = first && cat /etc/settings/key && sleep 3600']
    env:
    - name: KEY
      valueFrom: {{configMapKeyRef: {{name: settings, key: key}}}}
    volumeMounts: [{{name: settings, mountPath: /etc/settings}}]
  volumes: [{{name: settings, configMap: {{name: settings}}}}]
"#
        )
    };
    kubectl.apply(&manifest("first"))?;
    kubectl.run(&[
        "wait",
        "pod/reader",
        "--for=condition=Ready",
        "--timeout=60s",
    ])?;
    let revision = || kubectl.run(&["get", "pod/reader", "-o", REVISION]);
    let before = revision()?;
    let again = kubectl.apply(&manifest("first"))?;
    // Of the pod kubectl says that it was configured: its patch names the order of the volumes,
    // because the token's volume is not in the manifest (`isOrderSame` in
    // `k8s.io/apimachinery/pkg/util/strategicpatch`).
    assert!(again.contains("configmap/settings unchanged"), "{again}");
    assert_eq!(revision()?, before, "{again}");
    let changed = kubectl.apply(&manifest("second"))?;
    assert!(
        changed.contains("configmap/settings configured"),
        "{changed}"
    );
    kubectl.run(&["delete", "pod/reader", "configmap/settings"])?;
    Ok(())
}

/// The words of Kubernetes for what it does not accept.
fn refusals(kubectl: &Kubectl) -> Result<()> {
    let pod = |name: &str, spec: &str| {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {spec}\n")
    };
    let containers = format!("containers: [{{name: main, image: {IMAGE}}}]");
    let cases = [
        (
            pod("x", &format!("{{{containers}, colour: red}}")),
            "unknown field \"spec.colour\"",
        ),
        (
            pod("x", &format!("{{{containers}, hostNetwork: maybe}}")),
            "cannot unmarshal string",
        ),
        (
            pod("Upper_", &format!("{{{containers}}}")),
            "a lowercase RFC 1123 subdomain must consist",
        ),
        (
            pod("x", "{containers: []}"),
            "spec.containers: Required value",
        ),
        (
            "apiVersion: v1\nkind: Gadget\nmetadata: {name: x}\n".to_owned(),
            "no matches for kind \"Gadget\"",
        ),
    ];
    for (manifest, words) in cases {
        let output = kubectl.with_input(&["create", "-f", "-"], &manifest)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(words),
            "{words}: {said}"
        );
    }
    let unknown = kubectl.refused(&["get", "gadgets"])?;
    assert!(
        unknown.contains("the server doesn't have a resource type \"gadgets\""),
        "{unknown}"
    );
    Ok(())
}
