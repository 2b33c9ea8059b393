//! Ports of the node that lead to pods.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::pods::{LIMIT, is_ready, pod, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// How long a server may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

#[test]
fn a_host_port_leads_to_its_pod_while_it_lives_and_to_no_second_one() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    let port = free_port()?;
    kubectl.apply(&serving("first", image, port, None).to_string())?;
    let get = |name: &str| pod(&kubectl, name);
    wait_for("first is Ready", LIMIT, || {
        is_ready(&get("first")?).then_some(())
    })?;
    let addresses = [[127, 0, 0, 1], host_ip(&get("first").context("first")?)?];
    for address in addresses {
        let at = SocketAddr::from((address, port));
        wait_for("the pod answers", LIMIT, || {
            ask(at)?.ends_with("\nfirst\n").then_some(())
        })?;
    }

    // The scheduler knows that the port is taken; so does the node, if nobody asks the scheduler.
    kubectl.apply(&serving("second", image, port, None).to_string())?;
    let node = stack.options().node_name.as_str();
    kubectl.apply(&serving("forced", image, port, Some(node)).to_string())?;
    wait_for("forced is refused", LIMIT, || {
        let status = get("forced")?["status"].clone();
        (status["phase"] == "Failed" && status["reason"] == "NodePorts").then_some(())
    })?;
    let second = get("second").context("second")?;
    assert_eq!(second["spec"]["nodeName"], Value::Null, "{second}");

    kubectl.run(&["delete", "pod", "first"])?;
    wait_for("second takes the port", LIMIT, || {
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        ask(at)?.ends_with("\nsecond\n").then_some(())
    })?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)?;
    wait_for("the port leads nowhere", LIMIT, || {
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        ask(at).is_none().then_some(())
    })
}

/// A pod that serves its name by HTTP.
fn serving(name: &str, image: &str, port: u16, node: Option<&str>) -> Value {
    let script = format!("mkdir /www; echo {name} > /www/index.html; httpd -f -p 80 -h /www");
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": image,
                "command": ["sh", "-c", script],
                "ports": [{"containerPort": 80, "hostPort": port}],
            }],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}

/// What who listens there says.
fn ask(at: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&at, ANSWER_LIMIT).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A port that nobody listens on now.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("0.0.0.0:0")?.local_addr()?.port())
}

fn host_ip(pod: &Value) -> Result<[u8; 4]> {
    let text = pod["status"]["hostIP"].as_str().context("hostIP")?;
    Ok(text.parse::<std::net::Ipv4Addr>()?.octets())
}
