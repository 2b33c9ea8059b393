//! Control plane, container runtime and node, as a user would start them.
//!
//! Everything lies in one folder: `control/` (store, authority), `containerd/` (a runtime of its
//! own, the machine's is left alone), `node/` (volumes), `cni/`, `logs/`. The programs find each
//! other through it, and a later command finds them by their pid files.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::containerd::{Containerd, ContainerdOptions};
use crate::images;
use crate::kubectl::Kubectl;
use crate::process::{Process, wait_for};
use crate::programs;

/// How long a program of the stack may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// How the log lines that a failed test prints say their level.
const COMPLAINTS: [&str; 3] = ["\"level\":\"WARN\"", "\"level\":\"ERROR\"", "panicked"];

/// How many of them are printed of each program, the last ones.
const COMPLAINTS_TOLD: usize = 40;

/// The node's configuration unless a test brings its own: how full a developer's disk is shall not
/// decide what a test sees.
const NODE_CONFIG: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard:
  memory.available: 100Mi
  nodefs.available: 1%
  nodefs.inodesFree: 1%
  imagefs.available: 1%
";

/// What a stack is made of.
#[derive(Clone, Debug)]
pub struct StackOptions {
    /// Folder of the stack.
    pub dir: PathBuf,
    /// Address of the API server; port 0 for any that is free.
    pub listen: SocketAddr,
    /// Name of the node.
    pub node_name: String,
    /// Addresses of the pods.
    pub pod_cidr: String,
    /// Prefix of the bridges' names.
    pub bridge: String,
    /// Name of the cgroup that holds all pods.
    pub cgroup_root: String,
    /// Most pods.
    pub max_pods: u32,
    /// What tells of starts and ends of containers: `auto`, or one of the node's sources.
    pub events: String,
    /// Name of the pause image.
    pub pause_image: String,
    /// Name of the busybox image.
    pub busybox_image: String,
    /// Further arguments of the node agent.
    pub node_arguments: Vec<String>,
    /// `RUST_LOG` of both programs.
    pub log: String,
}

impl StackOptions {
    /// A stack in this folder, with everything else as `make up` has it.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            node_name: "worker-1".to_owned(),
            pod_cidr: "10.244.0.0/24".to_owned(),
            bridge: "swift".to_owned(),
            cgroup_root: "kubepods".to_owned(),
            max_pods: 110,
            events: "auto".to_owned(),
            pause_image: "registry.local/pause:3.9".to_owned(),
            busybox_image: "registry.local/busybox:1.35".to_owned(),
            node_arguments: Vec::new(),
            log: "info".to_owned(),
        }
    }
}

/// A running stack. Dropped, it is removed; [`Stack::leave_running`] leaves it.
#[derive(Debug)]
pub struct Stack {
    options: StackOptions,
    containerd: Option<Containerd>,
    control: Option<Process>,
    node: Option<Process>,
    keep: bool,
}

impl Stack {
    /// Starts everything and waits until the node is Ready.
    pub fn start(mut options: StackOptions) -> Result<Self> {
        if !nix::unistd::geteuid().is_root() {
            bail!("must run as root: pods need namespaces, mounts and cgroups");
        }
        if Process::find(&options.dir, "control").is_some() {
            bail!(
                "a stack runs in {} already: make down",
                options.dir.display()
            );
        }
        // Logs of an earlier run would be taken for this one's.
        for name in ["control.log", "node.log"] {
            std::fs::remove_file(options.dir.join(name)).ok();
        }
        for folder in ["run", "cni/conf", "cni/bin", "logs", "images"] {
            std::fs::create_dir_all(options.dir.join(folder))?;
        }
        if options.listen.port() == 0 {
            options.listen = TcpListener::bind(options.listen)?.local_addr()?;
        }
        let mut stack = Self {
            options,
            containerd: None,
            control: None,
            node: None,
            keep: false,
        };
        stack.install_shim()?;
        stack.start_control()?;
        stack.start_containerd()?;
        stack.load_images()?;
        stack.wait_for_control()?;
        stack.start_node()?;
        stack.wait_for_node()?;
        Ok(stack)
    }

    /// The stack that an earlier command left running, with whatever of it still runs.
    pub fn find(options: StackOptions) -> Self {
        let dir = &options.dir;
        Self {
            containerd: Containerd::find(dir),
            control: Process::find(dir, "control"),
            node: Process::find(dir, "node"),
            options,
            keep: false,
        }
    }

    /// What it was started with; the port is the real one.
    pub fn options(&self) -> &StackOptions {
        &self.options
    }

    /// The admin's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.options.dir.join("control/admin.kubeconfig")
    }

    /// kubectl for this stack.
    pub fn kubectl(&self) -> Result<Kubectl> {
        Ok(Kubectl::new(&programs::kubectl()?, &self.kubeconfig()))
    }

    /// The runtime's socket.
    pub fn runtime_socket(&self) -> PathBuf {
        Containerd::socket_in(&self.options.dir)
    }

    /// Log of the control plane.
    pub fn control_log(&self) -> PathBuf {
        self.options.dir.join("control.log")
    }

    /// Log of the node.
    pub fn node_log(&self) -> PathBuf {
        self.options.dir.join("node.log")
    }

    /// The control plane's process.
    pub fn control(&self) -> Option<&Process> {
        self.control.as_ref()
    }

    /// The node's process.
    pub fn node(&self) -> Option<&Process> {
        self.node.as_ref()
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let StackOptions {
            listen,
            node_name,
            dir,
            ..
        } = &self.options;
        format!(
            "API server https://{listen}, node {node_name}, folder {}",
            dir.display()
        )
    }

    /// Leaves everything running when this value is dropped.
    pub fn leave_running(mut self) {
        self.keep = true;
        if let Some(containerd) = self.containerd.take() {
            containerd.leave_running();
        }
    }

    /// Kills the node agent as a crash would, and starts it again.
    pub fn crash_node(&mut self) -> Result<()> {
        self.kill_node()?;
        self.start_node()
    }

    /// Kills the node agent as a crash would.
    pub fn kill_node(&mut self) -> Result<()> {
        self.node.take().context("the node does not run")?.kill()
    }

    /// Stops the node agent, and starts it with other options.
    pub fn restart_node_with(&mut self, change: impl FnOnce(&mut StackOptions)) -> Result<()> {
        self.node.take().context("the node does not run")?.stop()?;
        change(&mut self.options);
        self.start_node()?;
        self.wait_for_node()
    }

    /// Kills the control plane as a crash would, and starts it again.
    pub fn crash_control(&mut self) -> Result<()> {
        self.kill_control()?;
        self.restart_control()
    }

    /// Kills the control plane as a crash would.
    pub fn kill_control(&mut self) -> Result<()> {
        let control = self.control.take();
        control.context("the control plane does not run")?.kill()
    }

    /// Starts the control plane and waits until it answers.
    pub fn restart_control(&mut self) -> Result<()> {
        self.start_control()?;
        self.wait_for_control()
    }

    /// Kills the runtime's daemon as a crash would (its shims live on), and starts it again.
    pub fn crash_containerd(&mut self) -> Result<()> {
        let containerd = self
            .containerd
            .as_mut()
            .context("containerd does not run")?;
        containerd.kill_daemon()?;
        containerd.restart()
    }

    /// Starts the node agent.
    pub fn start_node(&mut self) -> Result<()> {
        let StackOptions {
            dir,
            node_name,
            log,
            ..
        } = &self.options;
        let kubeconfig = dir.join("node.kubeconfig");
        if !kubeconfig.exists() {
            let mut command = self.control_command()?;
            let output = command.args(["kubeconfig", "--node", node_name]).output()?;
            if !output.status.success() {
                bail!("kubeconfig: {}", String::from_utf8_lossy(&output.stderr));
            }
            write_secret(&kubeconfig, &output.stdout)?;
        }
        let mut command = self.node_command()?;
        command.env("RUST_LOG", log).arg("--log-format=json");
        self.node = Some(Process::start(dir, "node", &mut command)?);
        Ok(())
    }

    /// Waits until the API says that the node is Ready.
    pub fn wait_for_node(&self) -> Result<()> {
        let kubectl = self.kubectl()?;
        let name = format!("node/{}", self.options.node_name);
        wait_for("node Ready", READY_LIMIT, || {
            let running = self.node.as_ref().is_some_and(Process::is_running);
            if !running {
                return Some(Err(self.last_words("node")));
            }
            let known = kubectl.run(&["get", &name, "-o", "name"]).is_ok();
            known.then_some(Ok(()))
        })??;
        kubectl.run(&["wait", &name, "--for=condition=Ready", "--timeout=30s"])?;
        Ok(())
    }

    /// Deletes all pods, stops everything, and removes all that it made, the folder included.
    pub fn remove(&mut self) -> Result<()> {
        self.keep = true;
        let mut errors = Vec::new();
        for process in [self.node.take(), self.control.take()]
            .into_iter()
            .flatten()
        {
            errors.extend(process.stop().err());
        }
        errors.extend(self.reset().err());
        if let Some(containerd) = self.containerd.take() {
            errors.extend(containerd.stop().err());
        }
        errors.extend(self.remove_folder().err());
        if errors.is_empty() {
            Ok(())
        } else {
            bail!("{errors:?}")
        }
    }

    /// Removes the node's pods, networks, cgroups and volumes.
    fn reset(&mut self) -> Result<()> {
        if self.containerd.is_none() {
            if !self.options.dir.join("containerd").exists() {
                return Ok(());
            }
            // Its shims may live on: only the daemon knows them.
            self.start_containerd()?;
        }
        let output = self.node_command()?.arg("reset").output()?;
        if !output.status.success() {
            bail!("reset: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    fn remove_folder(&self) -> Result<()> {
        match std::fs::remove_dir_all(&self.options.dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.options.dir.display()))
            }
            _ => Ok(()),
        }
    }

    fn install_shim(&self) -> Result<()> {
        let shim = programs::ours_static("swiftlet-cni")?;
        for name in ["swiftlet-cni", "loopback"] {
            std::fs::copy(&shim, self.options.dir.join("cni/bin").join(name))?;
        }
        Ok(())
    }

    fn control_command(&self) -> Result<Command> {
        let mut command = Command::new(programs::ours("swiftlet-control")?);
        command
            .arg("--data-dir")
            .arg(self.options.dir.join("control"))
            .arg("--listen")
            .arg(self.options.listen.to_string());
        Ok(command)
    }

    fn node_command(&self) -> Result<Command> {
        let StackOptions {
            dir,
            node_name,
            pod_cidr,
            bridge,
            cgroup_root,
            ..
        } = &self.options;
        let mut command = Command::new(programs::ours("swiftlet-node")?);
        let paths = [
            ("--kubeconfig", "node.kubeconfig"),
            ("--root-dir", "node"),
            ("--pod-logs-dir", "logs/pods"),
            ("--cni-conf-dir", "cni/conf"),
            ("--cni-bin-dir", "cni/bin"),
            ("--cni-socket", "run/cni.sock"),
            ("--cni-data-dir", "run/networks"),
        ];
        for (flag, path) in paths {
            command.arg(flag).arg(dir.join(path));
        }
        let socket = format!("unix://{}", self.runtime_socket().display());
        command.args(["--container-runtime-endpoint", &socket]);
        command.args(["--hostname-override", node_name, "--pod-cidr", pod_cidr]);
        command.args(["--bridge", bridge, "--cgroup-root", cgroup_root]);
        command.args(["--max-pods", &self.options.max_pods.to_string()]);
        command.args(["--events", &self.options.events]);
        // Any that is free: the machine's own node may have the usual one.
        command.arg("--port=0");
        let is_config = |argument: &String| argument.starts_with("--config");
        if !self.options.node_arguments.iter().any(is_config) {
            let path = dir.join("node.yaml");
            std::fs::write(&path, NODE_CONFIG)?;
            command.arg("--config").arg(path);
        }
        command.args(&self.options.node_arguments);
        Ok(command)
    }

    fn start_control(&mut self) -> Result<()> {
        let mut command = self.control_command()?;
        command
            .env("RUST_LOG", &self.options.log)
            .arg("--log-format=json");
        self.control = Some(Process::start(&self.options.dir, "control", &mut command)?);
        Ok(())
    }

    fn wait_for_control(&self) -> Result<()> {
        let kubectl = self.kubectl()?;
        wait_for("API server ready", READY_LIMIT, || {
            if !self.control.as_ref().is_some_and(Process::is_running) {
                return Some(Err(self.last_words("control")));
            }
            let ready =
                self.kubeconfig().exists() && kubectl.run(&["get", "--raw", "/readyz"]).is_ok();
            ready.then_some(Ok(()))
        })?
    }

    fn start_containerd(&mut self) -> Result<()> {
        let options = ContainerdOptions {
            pause_image: self.options.pause_image.clone(),
            cni_conf_dir: self.options.dir.join("cni/conf"),
            cni_bin_dir: self.options.dir.join("cni/bin"),
        };
        self.containerd = Some(Containerd::start(&self.options.dir, &options)?);
        Ok(())
    }

    fn load_images(&self) -> Result<()> {
        let folder = self.options.dir.join("images");
        let pause = images::pause_archive(&folder, &self.options.pause_image)?;
        let busybox = images::busybox_archive(&folder, &self.options.busybox_image)?;
        images::import(&self.runtime_socket(), &[pause, busybox])
    }

    /// Prints what the programs complained of: a failed test takes their logs with it.
    fn tell_complaints(&self) {
        for path in [self.control_log(), self.node_log()] {
            let text = std::fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let is_complaint = |line: &&str| COMPLAINTS.iter().any(|level| line.contains(level));
            let complaints: Vec<&str> = text.lines().filter(is_complaint).collect();
            let first = complaints.len().saturating_sub(COMPLAINTS_TOLD);
            eprintln!("{}:", path.display());
            for line in &complaints[first..] {
                eprintln!("  {line}");
            }
        }
    }

    fn last_words(&self, name: &str) -> anyhow::Error {
        let log = self.options.dir.join(format!("{name}.log"));
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let last: Vec<&str> = text.lines().rev().take(5).collect();
        anyhow::anyhow!("swiftlet-{name} ended: {}", last.join(" | "))
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // Tests fail by an error as well as by a panic; who succeeds is not printed at all.
        self.tell_complaints();
        if let Err(error) = self.remove() {
            eprintln!("stack not removed: {error:#}");
        }
    }
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::File::options();
    let mut file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    Ok(file.write_all(bytes)?)
}
