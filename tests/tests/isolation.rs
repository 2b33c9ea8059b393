//! A pod that hangs costs the others nothing.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::hang::{FrozenFilesystem, StoppedShim};
use swiftlet_tests::pods::{LIMIT, is_ready, manifest, pod, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Pods that start, run and go while others hang.
const OTHERS: usize = 5;

#[test]
fn pods_that_hang_in_a_mount_a_probe_or_a_stop_cost_the_others_nothing() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    // Thawed before the stack ends, whatever happens: what hangs in it cannot be killed.
    let mut frozen = FrozenFilesystem::freeze(folder.path())?;
    let kubectl = stack.kubectl()?;
    let image = stack.options().busybox_image.clone();

    kubectl.apply(&manifest("stopping", 1, &image, "sleep 3600"))?;
    kubectl.apply(&hangs_in_a_probe(&image).to_string())?;
    let mount = frozen.path().display().to_string();
    kubectl.apply(&hangs_in_a_mount(&image, &mount).to_string())?;
    wait_for("the pods that will hang", LIMIT, || {
        let probed = pod(&kubectl, "probed")?;
        let running = probed["status"]["phase"] == "Running";
        (running && is_ready(&pod(&kubectl, "stopping-0")?)).then_some(())
    })?;
    let uid = pod(&kubectl, "stopping-0").context("it runs")?;
    let shim = StoppedShim::stop(uid["metadata"]["uid"].as_str().unwrap_or_default())?;
    // With no grace at all the API would not wait for the node.
    let grace = "--grace-period=1";
    kubectl.run(&["delete", "pod", "stopping-0", grace, "--wait=false"])?;

    kubectl.apply(&manifest("other", OTHERS, &image, "sleep 3600"))?;
    wait_for("the others Ready", LIMIT, || {
        let ready =
            |number| pod(&kubectl, &format!("other-{number}")).is_some_and(|pod| is_ready(&pod));
        (0..OTHERS).all(ready).then_some(())
    })?;
    for number in 0..OTHERS {
        let name = format!("other-{number}");
        kubectl.run(&["delete", "pod", &name, grace, "--timeout=60s"])?;
    }
    let waiting = pod(&kubectl, "mounting").context("it hangs")?;
    assert_eq!(
        waiting["status"]["phase"], "Pending",
        "{}",
        waiting["status"]
    );
    assert!(!is_ready(&pod(&kubectl, "probed").context("it runs")?));
    assert!(
        pod(&kubectl, "stopping-0").is_some(),
        "its shim does not answer"
    );

    // And what hung goes on when it can.
    drop(shim);
    frozen.thaw()?;
    wait_for("mounting Ready", LIMIT, || {
        is_ready(&pod(&kubectl, "mounting")?).then_some(())
    })?;
    kubectl.run(&["delete", "pods", "--all", grace, "--wait=false"])?;
    wait_gone(&kubectl)
}

fn hangs_in_a_probe(image: &str) -> Value {
    let mut pod = plain("probed", image);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({
        "exec": {"command": ["sleep", "3600"]}, "timeoutSeconds": 3600, "periodSeconds": 1,
    });
    pod
}

fn hangs_in_a_mount(image: &str, path: &str) -> Value {
    let mut pod = plain("mounting", image);
    let volume = json!({"name": "slow", "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
    pod["spec"]["volumes"] = json!([volume]);
    let mount = json!({"name": "slow", "mountPath": "/slow"});
    pod["spec"]["containers"][0]["volumeMounts"] = json!([mount]);
    pod
}

fn plain(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": image, "command": ["sleep", "3600"],
            }],
        },
    })
}
