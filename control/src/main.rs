//! The control plane: API server, store, controllers, scheduler. This program only wires.
#![forbid(unsafe_code)]

mod kubeconfig;
mod logging;
mod options;
mod timeline;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

use crate::options::{Cli, Command};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let Cli { options, command } = Cli::parse();
    logging::start(options.log_format);
    let outcome = match command {
        Some(Command::Kubeconfig(arguments)) => kubeconfig::print(&options, &arguments),
        None => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(anyhow::Error::from)
            .and_then(|runtime| runtime.block_on(wire::run(&options))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("swiftlet-control: {error:#}");
            ExitCode::FAILURE
        }
    }
}
