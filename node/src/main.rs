//! The node agent: a kubelet. This program only wires; decisions are in `node/kubelet`.
#![forbid(unsafe_code)]

mod configuration;
mod doctor;
mod facts;
mod families;
mod logging;
mod logind;
mod network;
mod options;
mod reset;
mod server;
mod sources;
mod topology;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ArgMatches;
use mimalloc::MiMalloc;

use crate::configuration::{Configuration, ConfigurationError, Settings};
use crate::options::{Cli, Command, NodeOptions};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How long blocking calls may go on after the work has ended.
const STRAGGLER_LIMIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let (cli, matches) = Cli::read();
    let Cli {
        mut options,
        command,
    } = cli;
    logging::start(options.log_format);
    // Each pod takes a few descriptors, each command in a container some more.
    if let Err(error) = swiftlet_sys::descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let configured = configure(&mut options, &matches);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            match command {
                Some(Command::Doctor) => Ok(doctor::run(&options, configured.as_ref()).await),
                Some(Command::Reset) => {
                    configured?;
                    as_root(reset::run(&options)).await
                }
                None => {
                    let settings = configured?;
                    as_root(wire::run(&options, settings)).await
                }
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

/// Reads the configuration and lays it under the options. Without one, all is as the command line
/// says.
fn configure(
    options: &mut NodeOptions,
    matches: &ArgMatches,
) -> Result<Settings, ConfigurationError> {
    let mut settings = match options.config.clone() {
        None => Settings::default(),
        Some(path) => {
            let configuration = Configuration::read(&path)?;
            for (field, value) in configuration.without_effect() {
                tracing::warn!(field, %value, "this field of the configuration has no effect");
            }
            configuration.apply(options, &|option| options::is_given(matches, option))?
        }
    };
    settings
        .static_pods
        .path
        .clone_from(&options.pod_manifest_path);
    Ok(settings)
}

/// Everything but `doctor` makes namespaces, mounts and cgroups.
async fn as_root(work: impl Future<Output = Result<()>>) -> Result<ExitCode> {
    if !nix::unistd::geteuid().is_root() {
        bail!("must run as root: pods need namespaces, mounts and cgroups");
    }
    work.await.map(|()| ExitCode::SUCCESS)
}
