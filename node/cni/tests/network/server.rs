//! The node's network as a program of its own, for the tests of crashes: it can be killed.
//!
//! `swiftlet-cni-server <socket> <conf> <host namespace>`; on stdin, a line each and answered by a
//! line: `reconcile <live ids>` and `sweep <live ids>`. Ends with its stdin.
#![forbid(unsafe_code)]

use std::io::{BufRead, stdin};
use std::path::PathBuf;
use std::time::Duration;

use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::start;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [socket, conf, host] = arguments.as_slice() else {
        return Err("three arguments are needed: socket, conf, host namespace".into());
    };
    let handle = start(NetworkOptions {
        socket: PathBuf::from(socket),
        conf: Some(std::fs::read(conf)?),
        host_netns: Some(PathBuf::from(host)),
        // One, so that the places that a request passes have one order.
        workers: 1,
        // Two sweeps are enough.
        missing_limit: Duration::ZERO,
        ..NetworkOptions::default()
    })?;
    println!("ready");
    for line in stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let command = words.next();
        let live: Vec<_> = words.collect();
        let freed = match command {
            Some("reconcile") => handle.reconcile(&live)?,
            Some("sweep") => handle.sweeper().sweep(&live)?,
            other => return Err(format!("{other:?} is no command").into()),
        };
        println!("{freed}");
    }
    handle.shutdown();
    Ok(())
}
