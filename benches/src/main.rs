//! swiftlet-bench: pod start latency against any Kubernetes API.
//!
//! Every figure is taken with the client's clock, from the call to what a watch sees, and printed
//! with n, p50, p90, p99, max, failures and the set-up. A second figure in the same run is the
//! floor: the same three CRI calls alone.
#![forbid(unsafe_code)]

mod cri;
mod events;
mod exit;
mod network;
mod phases;
mod pod_start;
mod pods;
mod setup;
mod soak;
mod static_pod;
mod stats;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};

/// swiftlet-bench measures pod starts and exits against any Kubernetes API.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// create -> Running and Ready as a watch sees it, one pod after another or all at once.
    PodStart(pod_start::Arguments),
    /// A container's process is killed -> terminated in the API. Must run on the pods' node.
    Exit(exit::Arguments),
    /// What the kernel's events cost others, how fast they come, and how many fit. As root.
    Events(events::Arguments),
    /// CNI ADD and DEL in the node and by the reference plugins. As root, in namespaces of its own.
    Network(network::Arguments),
    /// Pods come and go while agent and runtime are killed; fails if anything is left. As root.
    Soak(soak::Arguments),
    /// A static pod's manifest comes → its process runs. Must run on the pods' node.
    Static(static_pod::Arguments),
    /// The floor: RunPodSandbox, CreateContainer and StartContainer alone.
    Cri(cri::Arguments),
}

/// Which cluster and which image.
#[derive(Clone, Debug, Args)]
struct Target {
    /// Kubeconfig of the cluster; KUBECONFIG or ~/.kube/config if not given.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the pods.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Image with sh and sleep; must be present on the node.
    #[arg(long, default_value = "registry.local/busybox:1.35")]
    image: String,
    /// Print one JSON document in the schema of perf-tests (PerfData) instead of a table.
    #[arg(long)]
    json: bool,
}

impl Target {
    /// The default namespace of a stack.
    fn of_stack(kubeconfig: PathBuf, image: &str) -> Self {
        Self {
            kubeconfig: Some(kubeconfig),
            namespace: "default".to_owned(),
            image: image.to_owned(),
            json: false,
        }
    }

    async fn client(&self) -> Result<kube::Client> {
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = kube::config::Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot use kubeconfig {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(
                    file,
                    &kube::config::KubeConfigOptions::default(),
                )
                .await?
            }
            None => kube::Config::infer().await?,
        };
        Ok(kube::Client::try_from(config)?)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let outcome = match Cli::parse().command {
        Command::PodStart(arguments) => pod_start::run(arguments).await,
        Command::Static(arguments) => static_pod::run(arguments).await,
        Command::Exit(arguments) => exit::run(arguments).await,
        Command::Events(arguments) => events::run(&arguments).await,
        Command::Network(arguments) => network::run(&arguments),
        Command::Soak(arguments) => soak::run(arguments).await,
        Command::Cri(arguments) => cri::run(arguments).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swiftlet-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
