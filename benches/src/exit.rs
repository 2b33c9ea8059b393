//! A container's process is killed → terminated in the API.

use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Target;
use crate::pods::Pods;
use crate::setup;
use crate::stats::{Samples, print};

/// Options of `exit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many kills.
    #[arg(short, long, default_value_t = 50)]
    n: usize,
    /// Name of the cgroup that holds all pods.
    #[arg(long, default_value = "kubepods")]
    cgroup_root: String,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.target.client().await?;
    if !arguments.target.json {
        println!("{}", setup::describe(&client).await?);
    }
    let pods = Pods::start(client, &arguments.target).await?;
    let mut latency = Samples::new("kill_to_terminated");
    let (mut failures, mut wrong) = (0, 0);
    for number in 0..arguments.n {
        let name = format!("exit-{number}");
        match one(&pods, &name, number, &arguments.cgroup_root, &mut latency).await {
            Ok(true) => (),
            Ok(false) => wrong += 1,
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failures += 1;
            }
        }
        pods.delete(&name).await?;
    }
    print(&[&latency], failures, arguments.target.json);
    println!("wrong exit codes: {wrong} of {}", latency.len());
    Ok(())
}

/// Every second container is killed, the others end themselves with a code of their own.
async fn one(
    pods: &Pods,
    name: &str,
    number: usize,
    cgroup_root: &str,
    latency: &mut Samples,
) -> Result<bool> {
    let code = i32::try_from(number % 120)? + 1;
    let script = format!("trap 'exit {code}' USR1; while :; do sleep 3600 & wait; done");
    pods.create(name, &["sh", "-c", &script], false).await?;
    pods.wait(name, |moments| moments.ready).await?;
    let pod = serde_json::to_value(pods.get(name).await?)?;
    let pid = swiftlet_tests::demo::first_process(cgroup_root, &pod).context("find the process")?;
    wait_for_trap(pid).await;
    let (signal, expected) = if number.is_multiple_of(2) {
        (Signal::SIGKILL, 137)
    } else {
        (Signal::SIGUSR1, code)
    };
    let start = Instant::now();
    kill(Pid::from_raw(pid), signal)?;
    let (at, found) = pods.wait(name, |moments| moments.terminated).await?;
    latency.push(at.saturating_duration_since(start));
    if found != expected {
        eprintln!("{name}: exit code {found}, expected {expected}");
    }
    Ok(found == expected)
}

/// The shell needs a moment before it catches SIGUSR1 (bit 9 of `SigCgt`, proc(5)).
async fn wait_for_trap(pid: i32) {
    let catches = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))?
            .trim()
            .to_owned();
        Some(u64::from_str_radix(&mask, 16).ok()? & (1 << 9) != 0)
    };
    while catches() == Some(false) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
