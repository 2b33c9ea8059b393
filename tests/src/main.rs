//! `swiftlet-stack`: the whole stack on this machine, for `make demo`, `make up` and `make down`.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use swiftlet_tests::demo;
use swiftlet_tests::stack::{Stack, StackOptions};

/// swiftlet-stack starts control plane, container runtime and node on this machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the stack, run pods, show the timeline, stop everything.
    Demo(Arguments),
    /// Start the stack and leave it running.
    Up(Arguments),
    /// Stop the stack and remove all that it made.
    Down(Arguments),
}

#[derive(Debug, Args)]
struct Arguments {
    /// Folder of the stack.
    #[arg(long, default_value = "/var/lib/swiftlet-stack")]
    dir: PathBuf,
    /// Address of the API server; port 0 for any that is free.
    #[arg(long, default_value = "127.0.0.1:6443")]
    listen: SocketAddr,
    /// Name of the pause image, made here and loaded.
    #[arg(
        long,
        env = "SWIFTLET_PAUSE_IMAGE",
        default_value = "registry.local/pause:3.9"
    )]
    pause_image: String,
    /// Name of the busybox image, made here and loaded.
    #[arg(
        long,
        env = "SWIFTLET_BUSYBOX_IMAGE",
        default_value = "registry.local/busybox:1.35"
    )]
    busybox_image: String,
    /// Most pods on the node.
    #[arg(long, default_value_t = 110)]
    max_pods: u32,
    /// What tells of starts and ends of containers: auto, bpf, runtime, pidfd or relist.
    #[arg(long, default_value = "auto")]
    events: String,
    /// What control plane and node log, as `RUST_LOG` says it.
    #[arg(long, default_value = "info")]
    log: String,
    /// An argument for the node; may be given again.
    #[arg(long = "node-argument", allow_hyphen_values = true)]
    for_node: Vec<String>,
}

impl Arguments {
    fn options(self) -> StackOptions {
        let mut options = StackOptions::new(&self.dir);
        options.listen = free_or_any(self.listen);
        options.pause_image = self.pause_image;
        options.busybox_image = self.busybox_image;
        options.max_pods = self.max_pods;
        options.events = self.events;
        options.log = self.log;
        options.node_arguments = self.for_node;
        options
    }
}

/// The address itself, or a free port where another server has that one.
fn free_or_any(mut listen: SocketAddr) -> SocketAddr {
    if std::net::TcpListener::bind(listen).is_err() {
        listen.set_port(0);
    }
    listen
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swiftlet-stack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::Demo(arguments) => demo::run(arguments.options()),
        Command::Up(arguments) => {
            let stack = Stack::start(arguments.options())?;
            println!("{}", stack.describe());
            println!("export KUBECONFIG={}", stack.kubeconfig().display());
            stack.leave_running();
            Ok(())
        }
        Command::Down(arguments) => Stack::find(arguments.options()).remove(),
    }
}
