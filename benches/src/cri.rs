//! The floor: the same three CRI calls alone, on the same runtime with the same network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use swiftlet_cgroup::PodCgroups;
use swiftlet_cri::Cri;
use swiftlet_model::clock::Deadline;
use swiftlet_model::ids::{ContainerName, PodKey, PodUid};
use swiftlet_model::runtime::{
    ContainerConfig, ContainerSecurity, LinuxResources, NamespaceOptions, PodSecurity, Runtime,
    SandboxConfig,
};

use crate::setup;
use crate::stats::{Samples, print};

/// How long a sandbox may take.
const SANDBOX_LIMIT: Duration = Duration::from_mins(1);

/// Cgroup of the pods, beside that of a kubelet.
const CGROUP: &str = "swiftlet-bench";

/// Options of `cri`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Socket of the runtime.
    #[arg(long, default_value = "/run/containerd/containerd.sock")]
    socket: PathBuf,
    /// Image with sleep; must be present.
    #[arg(long, default_value = "registry.local/busybox:1.35")]
    image: String,
    /// How many pods, one after another.
    #[arg(short, long, default_value_t = 30)]
    n: usize,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    println!(
        "# {}, CRI at {}",
        setup::kernel(),
        arguments.socket.display()
    );
    let mut floor = Floor::new(&arguments.socket, &arguments.image);
    for number in 0..arguments.n {
        floor.once(number).await?;
    }
    floor.clean_up().await?;
    print(&floor.samples(), 0, false);
    Ok(())
}

/// Measures the three calls.
pub(crate) struct Floor {
    runtime: Cri,
    image: String,
    sandbox: Samples,
    create: Samples,
    start: Samples,
    total: Samples,
}

impl Floor {
    pub(crate) fn new(socket: &Path, image: &str) -> Self {
        Self {
            runtime: Cri::new(socket.to_owned()),
            image: image.to_owned(),
            sandbox: Samples::new("cri_run_pod_sandbox"),
            create: Samples::new("cri_create_container"),
            start: Samples::new("cri_start_container"),
            total: Samples::new("cri_three_calls"),
        }
    }

    pub(crate) fn samples(&self) -> [&Samples; 4] {
        [&self.sandbox, &self.create, &self.start, &self.total]
    }

    pub(crate) fn total(&self) -> &Samples {
        &self.total
    }

    /// Removes the cgroups that the runtime made for the pods.
    pub(crate) async fn clean_up(&self) -> Result<()> {
        Ok(PodCgroups::new(CGROUP)?.remove_all().await?)
    }

    /// Starts one pod by the three calls and removes it.
    pub(crate) async fn once(&mut self, number: usize) -> Result<()> {
        let pod = sandbox_config(number);
        let container = container_config(&self.image);
        let begin = Instant::now();
        let sandbox = self
            .runtime
            .run_sandbox(&pod, Deadline::after(SANDBOX_LIMIT))
            .await?;
        let sandbox_done = begin.elapsed();
        let id = self
            .runtime
            .create_container(&sandbox, &container, &pod)
            .await?;
        let create_done = begin.elapsed();
        self.runtime.start_container(&id).await?;
        let start_done = begin.elapsed();
        self.sandbox.push(sandbox_done);
        self.create.push(create_done.saturating_sub(sandbox_done));
        self.start.push(start_done.saturating_sub(create_done));
        self.total.push(start_done);
        self.runtime.stop_sandbox(&sandbox).await?;
        self.runtime.remove_sandbox(&sandbox).await?;
        Ok(())
    }
}

/// No kubelet labels: a node agent leaves pods alone that bear none.
fn sandbox_config(number: usize) -> SandboxConfig {
    let uid = format!("swiftlet-bench-{}-{number}", std::process::id());
    SandboxConfig {
        pod: PodKey {
            namespace: "swiftlet-bench".to_owned(),
            name: format!("floor-{number}"),
            uid: PodUid::from(uid),
        },
        attempt: 0,
        hostname: format!("floor-{number}"),
        log_directory: PathBuf::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        cgroup_parent: format!("/{CGROUP}"),
        dns: None,
        port_mappings: Vec::new(),
        namespaces: NamespaceOptions::default(),
        sysctls: BTreeMap::new(),
        runtime_handler: String::new(),
        security: PodSecurity::default(),
    }
}

fn container_config(image: &str) -> ContainerConfig {
    ContainerConfig {
        name: ContainerName::from("main"),
        attempt: 0,
        image: image.to_owned(),
        command: vec!["sleep".to_owned(), "3600".to_owned()],
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        mounts: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        log_path: String::new(),
        stdin: false,
        stdin_once: false,
        tty: false,
        resources: LinuxResources {
            cpu_shares: 2,
            cpu_period_us: 100_000,
            ..Default::default()
        },
        security: ContainerSecurity::default(),
    }
}
