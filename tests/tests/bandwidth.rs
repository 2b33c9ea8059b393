//! The bandwidth annotations of a pod, through the runtime, down to the kernel.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use swiftlet_tests::pods::{LIMIT, wait_gone, wait_ready};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Where the kernel lists the links of this namespace.
const LINKS: &str = "/sys/class/net";

#[test]
fn annotations_limit_a_pod_and_its_end_takes_the_limit_away() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let before = devices()?;
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "limited",
            "annotations": {
                "kubernetes.io/ingress-bandwidth": "8M",
                "kubernetes.io/egress-bandwidth": "16M",
            },
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": stack.options().busybox_image,
                "command": ["sleep", "3600"],
            }],
        },
    });
    kubectl.apply(&pod.to_string())?;
    wait_ready(&kubectl, 1)?;
    let made: Vec<_> = devices()?
        .into_iter()
        .filter(|one| !before.contains(one))
        .collect();
    let [device] = &made[..] else {
        anyhow::bail!("one device for the pod's egress, not {made:?}");
    };
    // 16 Mbit in bytes, and 8 Mbit on the host's end of the pod's pair.
    ensure!(rates(device)? == [2_000_000], "{:?}", rates(device)?);
    let mut limits = Vec::new();
    for port in links("veth")? {
        limits.extend(rates(&port)?);
    }
    ensure!(limits == [1_000_000], "{limits:?}");

    kubectl.run(&["delete", "pod", "limited", "--wait=false"])?;
    wait_gone(&kubectl)?;
    wait_for("the device is gone", LIMIT, || {
        (!devices().ok()?.contains(device)).then_some(())
    })
}

/// The devices of limits of egress.
fn devices() -> Result<Vec<String>> {
    links("bwp")
}

/// The links of which the name begins so.
fn links(prefix: &str) -> Result<Vec<String>> {
    let links = fs::read_dir(LINKS)?;
    let names = links.map(|link| Ok(link?.file_name().to_string_lossy().into_owned()));
    let names: Vec<String> = names.collect::<Result<_>>()?;
    Ok(names
        .into_iter()
        .filter(|name| name.starts_with(prefix))
        .collect())
}

/// The rates of a link's token buckets, in bytes per second.
fn rates(link: &str) -> Result<Vec<u64>> {
    let output = Command::new("tc")
        .args(["-j", "qdisc", "show", "dev", link])
        .output()?;
    let qdiscs: Vec<Value> = serde_json::from_slice(&output.stdout).context("tc")?;
    let buckets = qdiscs.iter().filter(|one| one["kind"] == "tbf");
    Ok(buckets
        .filter_map(|one| one["options"]["rate"].as_u64())
        .collect())
}
