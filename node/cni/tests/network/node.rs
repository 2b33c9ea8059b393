//! A host in a namespace, with the network running in it, and pods.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::{NetworkHandle, start};
use swiftlet_cni::wire::{ShimReply, ShimRequest};
use swiftlet_sys::netns;
use tempfile::TempDir;

/// A network namespace that ends with this value.
pub(crate) struct Namespace(OwnedFd);

impl Namespace {
    pub(crate) fn new() -> Self {
        Self(netns::create().expect("tests of the network run as root"))
    }

    /// A path that other processes can open too.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        netns::run_in(self.0.as_fd(), work).unwrap()
    }

    /// Runs a program inside and returns what it prints.
    pub(crate) fn output(&self, words: &[&str]) -> String {
        let run = || Command::new(words[0]).args(&words[1..]).output().unwrap();
        let output = self.run(run);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// `ip -j …`, or an empty list where it prints nothing.
    pub(crate) fn ip(&self, words: &[&str]) -> Vec<Value> {
        let text = self.output(&[&["ip", "-j", "-d"], words].concat());
        serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text }).unwrap()
    }

    pub(crate) fn links(&self) -> Vec<String> {
        let links = self.ip(&["link", "show"]);
        links
            .iter()
            .map(|link| link["ifname"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn veths(&self) -> Vec<String> {
        self.links()
            .into_iter()
            .filter(|name| name.starts_with("veth"))
            .collect()
    }
}

/// A node whose host side is a namespace.
pub(crate) struct Node {
    pub(crate) host: Namespace,
    pub(crate) dir: TempDir,
    pub(crate) conf: Value,
    pub(crate) handle: Option<NetworkHandle>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut Value)) -> Self {
        let host = Namespace::new();
        host.output(&["ip", "link", "set", "lo", "up"]);
        let dir = tempfile::tempdir().unwrap();
        let mut conf = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "swiftlet-cni", "bridge": "sw0",
            "isGateway": true, "hairpinMode": true, "ipMasq": false,
            "socket": dir.path().join("cni.sock"),
            "ipam": { "type": "host-local", "subnet": "10.88.0.0/16",
                      "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": dir.path().join("ipam") },
        });
        change(&mut conf);
        let mut node = Self {
            host,
            dir,
            conf,
            handle: None,
        };
        node.start();
        node
    }

    pub(crate) fn start(&mut self) {
        self.handle = Some(start(self.options()).unwrap());
    }

    pub(crate) fn options(&self) -> NetworkOptions {
        NetworkOptions {
            socket: self.socket(),
            conf: Some(self.conf.to_string().into_bytes()),
            host_netns: Some(PathBuf::from(self.host.path())),
            // Two sweeps are enough.
            missing_limit: Duration::ZERO,
            ..NetworkOptions::default()
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("cni.sock")
    }

    /// One request over the socket, as the shim sends it.
    pub(crate) fn ask(&self, command: &str, id: &str, netns: &str) -> Result<Value, Value> {
        self.ask_with(command, id, netns, &self.conf)
    }

    pub(crate) fn ask_with(
        &self,
        command: &str,
        id: &str,
        netns: &str,
        conf: &Value,
    ) -> Result<Value, Value> {
        let request = ShimRequest {
            command: command.into(),
            container_id: id.into(),
            netns: netns.into(),
            ifname: "eth0".into(),
            args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web;K8S_POD_UID=u-1".into(),
            path: String::new(),
            conf: conf.to_string().into_bytes(),
        };
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        request.write_to(&mut stream).unwrap();
        match ShimReply::read_from(&mut stream).unwrap() {
            ShimReply::Result(body) if body.is_empty() => Ok(Value::Null),
            ShimReply::Result(body) => Ok(serde_json::from_slice(&body).unwrap()),
            ShimReply::Error(body) => Err(serde_json::from_slice(&body).unwrap()),
        }
    }

    pub(crate) fn add(&self, id: &str, pod: &Namespace) -> Result<Value, Value> {
        self.ask("ADD", id, &pod.path())
    }

    pub(crate) fn del(&self, id: &str, netns: &str) {
        self.ask("DEL", id, netns).unwrap();
    }

    /// Addresses that are written down.
    pub(crate) fn reserved(&self) -> Vec<String> {
        let dir = self.dir.path().join("ipam/pods");
        let Ok(entries) = std::fs::read_dir(dir) else {
            return Vec::new();
        };
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.parse::<IpAddr>().is_ok())
            .collect();
        names.sort();
        names
    }
}

/// The pod's address in a result, without its prefix length.
pub(crate) fn address(result: &Value) -> IpAddr {
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

/// Whether a TCP connection from one pod to another pod's address comes about.
pub(crate) fn reaches(from: &Namespace, to: &Namespace, address: IpAddr) -> bool {
    let listener = to.run(|| TcpListener::bind((address, 0)).unwrap());
    let target: SocketAddr = listener.local_addr().unwrap();
    from.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(3)).is_ok())
}

/// Runs a plugin as containerd does: environment, conf on stdin. Returns exit and stdout.
pub(crate) fn exec_plugin(
    host: &Namespace,
    program: &str,
    variables: &[(&str, &str)],
    conf: &Value,
) -> (bool, String) {
    host.run(|| {
        let mut child = Command::new(program)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, conf.to_string().as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    })
}
