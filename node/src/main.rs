//! The node agent: a kubelet. This program only wires; decisions are in `node/kubelet`.
#![forbid(unsafe_code)]

mod doctor;
mod facts;
mod logging;
mod options;
mod reset;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use mimalloc::MiMalloc;

use crate::options::{Cli, Command};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long blocking calls may go on after the work has ended.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    logging::start(options.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            match command {
                Some(Command::Doctor) => Ok(doctor::run(&options).await),
                Some(Command::Reset) => as_root(reset::run(&options)).await,
                None => as_root(wire::run(&options)).await,
            }
        });
        // A file call that hangs must not keep a program that has ended from being started again.
        runtime.shutdown_timeout(STRAGGLER_LIMIT);
        outcome
    });
    outcome.unwrap_or_else(|error| {
        eprintln!("swiftlet-node: {error:#}");
        ExitCode::FAILURE
    })
}

/// Everything but `doctor` makes namespaces, mounts and cgroups.
async fn as_root(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("must run as root: pods need namespaces, mounts and cgroups");
    }
    work.await.map(|()| ExitCode::SUCCESS)
}
