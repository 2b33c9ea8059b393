//! Command line of the node agent. Names follow kubelet's flags where kubelet has one.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use swiftlet_pleg::Source;

use crate::families::PerFamily;

/// Kubernetes' default limit, min(110, 10 × cores) on small machines; see `docs/SPECIFICATION.md`.
const MAX_PODS_DEFAULT: u32 = 110;

/// The port on which nodes are asked (`ports.KubeletPort`).
const KUBELET_PORT: u16 = 10250;

/// swiftlet-node runs the pods of one Kubernetes node.
#[derive(Debug, Parser)]
#[command(version, about, long_about = None)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) options: NodeOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What to do instead of running the node.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say of each prerequisite whether it is there, and the remedy if not.
    Doctor,
    /// Remove every pod, network, cgroup and volume of this node. The agent must not be running.
    Reset,
}

/// What tells of starts and ends of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EventsChoice {
    /// The first of the others that works, in their order.
    Auto,
    /// BPF programs in the kernel.
    Bpf,
    /// The runtime's stream of events.
    Runtime,
    /// A descriptor of each container's first process.
    Pidfd,
    /// The runtime's lists, each second.
    Relist,
}

impl EventsChoice {
    /// The one source to use; `None` for the best that works.
    pub(crate) fn source(self) -> Option<Source> {
        match self {
            Self::Auto => None,
            Self::Bpf => Some(Source::Kernel),
            Self::Runtime => Some(Source::Runtime),
            Self::Pidfd => Some(Source::Pidfd),
            Self::Relist => Some(Source::Relist),
        }
    }
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
pub(crate) struct NodeOptions {
    /// A KubeletConfiguration (kubelet.config.k8s.io/v1beta1); options of the command line win
    /// over it.
    #[arg(long, global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Kubeconfig with the server, its authority and this node's client certificate.
    #[arg(long, global = true, default_value = "/etc/swiftlet/node.kubeconfig")]
    pub(crate) kubeconfig: PathBuf,
    /// Name of the Node object; the host's name if not given.
    #[arg(long, global = true)]
    pub(crate) hostname_override: Option<String>,
    /// Address of the node, or one of each family and the preferred one first; those of the
    /// default routes' interfaces if not given.
    #[arg(long, global = true)]
    pub(crate) node_ip: Option<PerFamily<IpAddr>>,
    /// Address of the node's own server.
    #[arg(long, global = true, default_value = "0.0.0.0")]
    pub(crate) address: IpAddr,
    /// Port of the node's own server; 0 for any that is free.
    #[arg(long, global = true, default_value_t = KUBELET_PORT)]
    pub(crate) port: u16,
    /// Certificate that the node serves with; without one, that of the kubeconfig if it is for
    /// serving, or one that the node makes itself.
    #[arg(long, global = true)]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, global = true)]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Authority of the certificates of the node's clients; the kubeconfig's if not given.
    #[arg(long, global = true)]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Folder for volumes and checkpoints.
    #[arg(long, global = true, default_value = "/var/lib/swiftlet")]
    pub(crate) root_dir: PathBuf,
    /// Folder for the logs of containers.
    #[arg(long, global = true, default_value = "/var/log/pods")]
    pub(crate) pod_logs_dir: PathBuf,
    /// Folder of static pods, or the file of one; none if not given.
    #[arg(long, global = true)]
    pub(crate) pod_manifest_path: Option<PathBuf>,
    /// The resolver's configuration that pods inherit with `dnsPolicy: Default`.
    #[arg(long, global = true, default_value = "/etc/resolv.conf")]
    pub(crate) resolv_conf: PathBuf,
    /// Socket of the container runtime.
    #[arg(
        long,
        global = true,
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    pub(crate) container_runtime_endpoint: String,
    /// Folder in which the runtime looks for network configurations.
    #[arg(long, global = true, default_value = "/etc/cni/net.d")]
    pub(crate) cni_conf_dir: PathBuf,
    /// Folder in which the runtime looks for network plugins.
    #[arg(long, global = true, default_value = "/opt/cni/bin")]
    pub(crate) cni_bin_dir: PathBuf,
    /// Socket on which the agent serves swiftlet-cni.
    #[arg(long, global = true, default_value = "/run/swiftlet/cni.sock")]
    pub(crate) cni_socket: PathBuf,
    /// Folder of the address files, in host-local's format.
    #[arg(long, global = true, default_value = "/run/swiftlet/networks")]
    pub(crate) cni_data_dir: PathBuf,
    /// Addresses of the pods: a range of IPv4, of IPv6, or one of each (`10.244.0.0/24,fd00::/64`).
    #[arg(long, global = true, default_value = "10.244.0.0/24")]
    pub(crate) pod_cidr: PerFamily<IpNet>,
    /// Prefix of the bridges' names.
    #[arg(long, global = true, default_value = "swift")]
    pub(crate) bridge: String,
    /// Most pods that run here.
    #[arg(long, global = true, default_value_t = MAX_PODS_DEFAULT)]
    pub(crate) max_pods: u32,
    /// Name of the cgroup that holds all pods.
    #[arg(long, global = true, default_value = "kubepods")]
    pub(crate) cgroup_root: String,
    /// What tells of starts and ends of containers. Where it cannot be used, a relist each second.
    #[arg(long, global = true, value_enum, default_value_t = EventsChoice::Auto)]
    pub(crate) events: EventsChoice,
    /// Seconds between two comparisons with the runtime's lists, the net below the kernel's events.
    #[arg(long, global = true, default_value_t = 60)]
    pub(crate) relist_interval_s: u64,
    /// Format of log lines; their level is set by RUST_LOG.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
}

impl Cli {
    /// Reads the command line; answers also what stands there, as opposed to defaults. Ends the
    /// program with a message if it is wrong, or asks for help.
    pub(crate) fn read() -> (Self, ArgMatches) {
        let matches = Self::command().get_matches();
        match Self::from_arg_matches(&matches) {
            Ok(cli) => (cli, matches),
            Err(error) => error.exit(),
        }
    }
}

/// Whether an option was given on the command line.
pub(crate) fn is_given(matches: &ArgMatches, option: &str) -> bool {
    matches.value_source(option) == Some(ValueSource::CommandLine)
}

impl NodeOptions {
    /// `metadata.name` of the Node.
    pub(crate) fn node_name(&self) -> String {
        self.hostname_override.clone().unwrap_or_else(host_name)
    }

    /// The runtime's socket as a path.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        let endpoint = &self.container_runtime_endpoint;
        PathBuf::from(endpoint.strip_prefix("unix://").unwrap_or(endpoint))
    }
}

/// The host's name in lower case, as kubelet registers it.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_lowercase()
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
    fn options_may_stand_after_the_command() {
        let cli = Cli::try_parse_from([
            "swiftlet-node",
            "doctor",
            "--events=pidfd",
            "--max-pods",
            "500",
        ]);
        let cli = cli.expect("parsed");
        assert!(matches!(cli.command, Some(Command::Doctor)));
        assert_eq!(cli.options.max_pods, 500);
        assert_eq!(cli.options.events, EventsChoice::Pidfd);
    }

    #[test]
    fn the_socket_is_a_path_with_or_without_scheme() {
        for endpoint in ["unix:///run/c.sock", "/run/c.sock"] {
            let arguments = ["swiftlet-node", "--container-runtime-endpoint", endpoint];
            let cli = Cli::try_parse_from(arguments).expect("parsed");
            assert_eq!(cli.options.runtime_socket(), PathBuf::from("/run/c.sock"));
        }
    }
}
