//! A host with a network, and the three ways to ask for a pod's.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::{NetworkHandle, start};
use swiftlet_cni::wire::{ShimReply, ShimRequest};
use swiftlet_sys::netns;
use tempfile::TempDir;

/// The pods' interface.
const IFNAME: &str = "eth0";

/// Who is asked for a pod's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The node, over its socket.
    Node,
    /// The program that containerd starts.
    Shim,
    /// The reference plugins.
    Reference,
}

/// A pod without a network.
pub(super) struct Pod {
    id: String,
    netns: OwnedFd,
}

/// A host in a namespace of its own.
pub(super) struct Site {
    pub(super) host: OwnedFd,
    /// The programs of a chain, with the conf of each.
    chain: Vec<(PathBuf, Value)>,
    socket: PathBuf,
    /// Before the folder, in which its socket is.
    _handle: Option<NetworkHandle>,
    _dir: TempDir,
}

impl Way {
    pub(super) const COUNT: usize = 3;

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Shim => "shim",
            Self::Reference => "reference",
        }
    }
}

impl Pod {
    pub(super) fn new() -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Ok(Self {
            id: format!("bench{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            netns: netns::create().context("make a namespace (as root?)")?,
        })
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.netns.as_raw_fd())
    }
}

impl Site {
    /// A host with the node's network.
    pub(super) fn node(shim: &Path, workers: Option<usize>) -> Result<Self> {
        let (host, dir) = (netns::create()?, tempfile::tempdir()?);
        let socket = dir.path().join("cni.sock");
        let mut conf = conf("swiftlet-cni", dir.path());
        conf["socket"] = json!(socket);
        let path = format!("/proc/{}/fd/{}", std::process::id(), host.as_raw_fd());
        let defaults = NetworkOptions::default();
        let handle = start(NetworkOptions {
            socket: socket.clone(),
            conf: Some(conf.to_string().into_bytes()),
            workers: workers.unwrap_or(defaults.workers),
            host_netns: Some(path.into()),
            ..defaults
        })?;
        Ok(Self {
            host,
            chain: vec![(shim.to_owned(), conf)],
            socket,
            _handle: Some(handle),
            _dir: dir,
        })
    }

    /// A host with the plugins of `folder`.
    pub(super) fn reference(folder: &Path) -> Result<Self> {
        let (host, dir) = (netns::create()?, tempfile::tempdir()?);
        let portmap = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "portmap",
            "capabilities": { "portMappings": true },
        });
        let bridge = conf("bridge", dir.path());
        Ok(Self {
            host,
            chain: vec![
                (folder.join("bridge"), bridge),
                (folder.join("portmap"), portmap),
            ],
            socket: PathBuf::new(),
            _handle: None,
            _dir: dir,
        })
    }

    /// Adds a pod; the result as the runtime gets it.
    pub(super) fn add(&self, way: Way, pod: &Pod) -> Result<Value> {
        if way == Way::Node {
            return self.ask("ADD", pod);
        }
        let mut result = Value::Null;
        for (program, conf) in &self.chain {
            result = exec(program, "ADD", pod, conf, &result)?;
        }
        Ok(result)
    }

    /// Deletes a pod, the last plugin of a chain first.
    pub(super) fn del(&self, way: Way, pod: &Pod, result: &Value) -> Result<()> {
        if way == Way::Node {
            return self.ask("DEL", pod).map(drop);
        }
        for (program, conf) in self.chain.iter().rev() {
            exec(program, "DEL", pod, conf, result)?;
        }
        Ok(())
    }

    fn ask(&self, command: &str, pod: &Pod) -> Result<Value> {
        let request = ShimRequest {
            command: command.to_owned(),
            container_id: pod.id.clone(),
            netns: pod.path(),
            ifname: IFNAME.to_owned(),
            conf: self.chain[0].1.to_string().into_bytes(),
            ..ShimRequest::default()
        };
        let mut stream = UnixStream::connect(&self.socket)?;
        request.write_to(&mut stream)?;
        match ShimReply::read_from(&mut stream)? {
            ShimReply::Result(body) => parse(&body),
            ShimReply::Error(body) => bail!("{command}: {}", String::from_utf8_lossy(&body)),
        }
    }
}

/// The same for both: what the node writes for containerd.
fn conf(kind: &str, dir: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0", "name": "pods", "type": kind, "bridge": "sw0",
        "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": { "type": "host-local", "subnet": "10.88.0.0/16",
                  "routes": [{ "dst": "0.0.0.0/0" }], "dataDir": dir.join("ipam") },
    })
}

/// Starts a plugin as a runtime does: environment, conf on stdin, result on stdout.
fn exec(program: &Path, command: &str, pod: &Pod, conf: &Value, previous: &Value) -> Result<Value> {
    let mut conf = conf.clone();
    if !previous.is_null() {
        conf["prevResult"] = previous.clone();
    }
    let mut child = Command::new(program)
        .envs([
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", &pod.id),
            ("CNI_IFNAME", IFNAME),
        ])
        .env("CNI_NETNS", pod.path())
        .env("CNI_PATH", program.parent().unwrap_or(Path::new("/")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut stdin = child.stdin.take().context("a pipe to the plugin")?;
    stdin.write_all(conf.to_string().as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout);
        bail!("{} {command}: {said}", program.display());
    }
    parse(&output.stdout)
}

/// DEL says nothing.
fn parse(body: &[u8]) -> Result<Value> {
    match body {
        [] => Ok(Value::Null),
        body => Ok(serde_json::from_slice(body)?),
    }
}
