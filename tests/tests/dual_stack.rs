//! A node whose pods have an address of IPv4 and one of IPv6.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::pods::{LIMIT, is_ready, pod, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

const POD_CIDRS: [&str; 2] = ["10.244.0.0/24", "fd00:10:244::/64"];
/// How long a server may take to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
const FORWARDING: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

/// The machine's setting of before; a node of IPv6 switches it on.
struct Forwarding(String);

impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Err(error) = fs::write(FORWARDING, &self.0) {
            eprintln!("{FORWARDING} is not as it was: {error}");
        }
    }
}

#[test]
fn a_pod_has_an_address_of_each_family_and_is_reached_by_both() -> Result<()> {
    // Dropped last: the node still forwards while it is taken down.
    let _forwarding = Forwarding(fs::read_to_string(FORWARDING)?);
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions {
        pod_cidr: POD_CIDRS.join(","),
        ..StackOptions::new(&folder.path().join("s"))
    })?;
    let kubectl = stack.kubectl()?;
    let node = kubectl.json(&["get", "node", &stack.options().node_name])?;
    assert_eq!(node["spec"]["podCIDR"], POD_CIDRS[0]);
    assert_eq!(node["spec"]["podCIDRs"], json!(POD_CIDRS));

    let image = &stack.options().busybox_image;
    let serve = "mkdir /www; echo served > /www/index.html; httpd -f -p [::]:80 -h /www";
    kubectl.apply(&manifest("server", image, serve).to_string())?;
    let server = wait_for("the server is Ready", LIMIT, || {
        pod(&kubectl, "server").filter(is_ready)
    })?;
    let addresses = pod_ips(&server)?;
    assert_eq!(addresses.len(), 2, "{server}");
    assert_eq!(
        server["status"]["podIP"],
        server["status"]["podIPs"][0]["ip"]
    );
    for (address, cidr) in addresses.iter().zip(POD_CIDRS) {
        assert_eq!(
            address.is_ipv4(),
            !cidr.contains(':'),
            "the node's family first"
        );
        let at = SocketAddr::new(*address, 80);
        wait_for("the host reaches the pod", LIMIT, || {
            TcpStream::connect_timeout(&at, CONNECT_LIMIT).ok()
        })?;
    }

    // Not wget: a static busybox looks for the port of "http" in libraries that the image lacks.
    let ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5";
    let fetch: Vec<_> = addresses
        .iter()
        .map(|address| format!("{ask} {address} 80 | tail -n 1"))
        .collect();
    let script = format!(
        "{{ echo $POD_IPS; echo $HOST_IPS; grep client /etc/hosts; {}; }} \
         > /dev/termination-log 2>&1",
        fetch.join("; ")
    );
    kubectl.apply(&manifest("client", image, &script).to_string())?;
    let client = wait_for("the client has ended", LIMIT, || {
        let ended =
            |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Running"));
        pod(&kubectl, "client").filter(ended)
    })?;
    let said = &client["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
    let said = said.as_str().context("the client's words")?;
    let own: Vec<_> = pod_ips(&client)?.iter().map(ToString::to_string).collect();
    let lines: Vec<_> = said.lines().collect();
    let hosts = |ip: &String| format!("{ip}\tclient");
    let wanted = [
        vec![own.join(","), host_ips(&client).join(",")],
        own.iter().map(hosts).collect(),
        vec!["served".to_owned(), "served".to_owned()],
    ];
    assert_eq!(lines, wanted.concat());

    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)?;
    let written = stack.options().dir.join("run/networks/swiftlet");
    wait_for("no address is held", LIMIT, || {
        held(&written).ok()?.is_empty().then_some(())
    })
}

/// The addresses that are written down.
fn held(folder: &Path) -> Result<Vec<IpAddr>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.parse::<IpAddr>().ok()));
    }
    Ok(found)
}

fn pod_ips(pod: &Value) -> Result<Vec<IpAddr>> {
    let ips = pod["status"]["podIPs"].as_array().context("podIPs")?;
    let texts = ips.iter().filter_map(|one| one["ip"].as_str());
    texts.map(|text| Ok(text.parse()?)).collect()
}

fn host_ips(pod: &Value) -> Vec<String> {
    let ips = pod["status"]["hostIPs"].as_array().into_iter().flatten();
    ips.filter_map(|one| Some(one["ip"].as_str()?.to_owned()))
        .collect()
}

fn manifest(name: &str, image: &str, script: &str) -> Value {
    let field = |name: &str, path: &str| {
        let source = json!({"fieldRef": {"fieldPath": path}});
        json!({"name": name, "valueFrom": source})
    };
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": image,
                "command": ["sh", "-c", script],
                "env": [field("POD_IPS", "status.podIPs"), field("HOST_IPS", "status.hostIPs")],
            }],
        },
    })
}
