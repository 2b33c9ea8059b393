//! Command line of the control plane.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use swiftlet_api::ServiceRange;

/// swiftlet-control is a Kubernetes control plane: API server, store, controllers and scheduler.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: ControlOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What to do instead of serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a kubeconfig with a fresh client certificate of the development authority.
    Kubeconfig(KubeconfigArguments),
}

/// For whom the kubeconfig is.
#[derive(Debug, Args)]
pub(crate) struct KubeconfigArguments {
    /// A node agent: user system:node:<NAME> in group system:nodes.
    #[arg(long, conflicts_with_all = ["user", "group"], required_unless_present = "user")]
    pub(crate) node: Option<String>,
    /// A user's name.
    #[arg(long)]
    pub(crate) user: Option<String>,
    /// Groups of the user; system:masters may do everything.
    #[arg(long)]
    pub(crate) group: Vec<String>,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityChoice {
    /// When its journal record is on disk.
    Journal,
    /// At once, and lost with the process: for benches.
    Memory,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Options that all commands share.
#[derive(Clone, Debug, Args)]
pub(crate) struct ControlOptions {
    /// Folder of the store, the development authority and the admin's kubeconfig.
    #[arg(long, global = true, default_value = "/var/lib/swiftlet-control")]
    pub(crate) data_dir: PathBuf,
    /// Address to serve on.
    #[arg(long, global = true, default_value = "127.0.0.1:6443")]
    pub(crate) listen: SocketAddr,
    /// More names and addresses for the serving certificate.
    #[arg(long, global = true)]
    pub(crate) tls_san: Vec<String>,
    /// Addresses that Services get. No traffic is routed to them here.
    #[arg(long, global = true, default_value_t = ServiceRange::default())]
    pub(crate) service_cluster_ip_range: ServiceRange,
    /// When a write is acknowledged.
    #[arg(long, global = true, value_enum, default_value_t = DurabilityChoice::Journal)]
    pub(crate) durability: DurabilityChoice,
    /// Format of log lines; their level is set by RUST_LOG.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_kubeconfig_is_for_a_node_or_for_a_user() {
        let parse = |words: &[&str]| {
            let words = ["swiftlet-control", "kubeconfig"].iter().chain(words);
            Cli::try_parse_from(words).is_ok()
        };
        assert!(parse(&["--node", "worker-1"]));
        assert!(parse(&["--user", "jane", "--group", "system:masters"]));
        assert!(!parse(&[]));
        assert!(!parse(&["--node", "worker-1", "--user", "jane"]));
    }
}
