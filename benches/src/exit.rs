//! A container's process is killed → terminated in the API.
//!
//! With a stack's folder, the same is measured in turns on that stack's node with nothing but a
//! relist each second, as kubelet has it, and the ratio is told.

mod turns;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Target;
use crate::pods::Pods;
use crate::setup;
use crate::stats::{Samples, print};

use self::turns::Turns;

/// A kill comes this long after its pod is Ready at most, in milliseconds: one period of the
/// relist, so that every moment of the period is as likely.
const DELAY_MS_MAX: u64 = 1_000;

/// Seed of those delays: each run has the same.
const SEED: u64 = 1;

/// Options of `exit`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many kills.
    #[arg(short, long, default_value_t = 200)]
    n: usize,
    /// How many other pods run on the node meanwhile.
    #[arg(long, default_value_t = 0)]
    beside: usize,
    /// Name of the cgroup that holds all pods.
    #[arg(long, default_value = "kubepods")]
    cgroup_root: String,
    /// Folder of a running stack (`swiftlet-stack up`): measure in turns with its node at a relist
    /// each second.
    #[arg(long, value_name = "DIR")]
    stack: Option<PathBuf>,
}

/// The kills on one kind of node.
struct Figure {
    latency: Samples,
    failures: usize,
    wrong: usize,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.target.client().await?;
    if !arguments.target.json {
        println!("{}", setup::describe(&client).await?);
        println!("# {} other pods on the node", arguments.beside);
    }
    let pods = Pods::start(client, &arguments.target).await?;
    fill(&pods, arguments.beside).await?;
    let mut events = Figure::new("kill_to_terminated");
    let mut relist = Figure::new("kill_to_terminated_by_relist");
    let mut draw = fastrand::Rng::with_seed(SEED);
    match &arguments.stack {
        None => {
            let all = 0..arguments.n;
            events
                .take(&pods, all, &arguments.cgroup_root, &mut draw)
                .await?;
        }
        Some(dir) => {
            let mut turns = Turns::of(dir);
            for range in turns::blocks(arguments.n) {
                let root = &arguments.cgroup_root;
                events.take(&pods, range.clone(), root, &mut draw).await?;
                turns.relist(true)?;
                relist.take(&pods, range, root, &mut draw).await?;
                turns.relist(false)?;
            }
            turns.end();
        }
    }
    report(&arguments, &events, &relist);
    Ok(())
}

fn report(arguments: &Arguments, events: &Figure, relist: &Figure) {
    let json = arguments.target.json;
    let failures = events.failures + relist.failures;
    if arguments.stack.is_none() {
        print(&[&events.latency], failures, json);
    } else {
        print(&[&events.latency, &relist.latency], failures, json);
        for percent in [50, 90, 99].into_iter().filter(|_| !json) {
            let (ours, theirs) = (&events.latency, &relist.latency);
            let (ours, theirs) = (ours.percentile_ms(percent), theirs.percentile_ms(percent));
            let ratio = theirs / ours.max(0.001);
            println!(
                "kill -> terminated p{percent}: a relist each second takes {ratio:.1}x as long"
            );
        }
    }
    if !json {
        let count = events.latency.len() + relist.latency.len();
        println!(
            "wrong exit codes: {} of {count}",
            events.wrong + relist.wrong
        );
    }
}

/// Pods that only sleep.
async fn fill(pods: &Pods, count: usize) -> Result<()> {
    let one = async |number: usize| -> Result<()> {
        let name = format!("beside-{number}");
        pods.create(&name, &["sleep", "36000"], false).await?;
        pods.wait(&name, |moments| moments.ready).await?;
        Ok(())
    };
    let all = join_all((0..count).map(one)).await;
    all.into_iter()
        .collect::<Result<()>>()
        .context("the other pods")
}

impl Figure {
    fn new(name: &'static str) -> Self {
        Self {
            latency: Samples::new(name),
            failures: 0,
            wrong: 0,
        }
    }

    /// Kills one pod after another.
    async fn take(
        &mut self,
        pods: &Pods,
        numbers: std::ops::Range<usize>,
        cgroup_root: &str,
        draw: &mut fastrand::Rng,
    ) -> Result<()> {
        for number in numbers {
            let name = format!("exit-{number}");
            let delay = Duration::from_millis(draw.u64(..DELAY_MS_MAX));
            match one(pods, &name, number, cgroup_root, delay).await {
                Ok((latency, right)) => {
                    self.latency.push(latency);
                    self.wrong += usize::from(!right);
                }
                Err(error) => {
                    eprintln!("{name}: {error:#}");
                    self.failures += 1;
                }
            }
            pods.delete(&name).await?;
            pods.forget(&name);
        }
        Ok(())
    }
}

/// Every second container is killed, the others end themselves with a code of their own. Answers
/// how long it took, and whether the code was right.
async fn one(
    pods: &Pods,
    name: &str,
    number: usize,
    cgroup_root: &str,
    delay: Duration,
) -> Result<(Duration, bool)> {
    let code = i32::try_from(number % 120)? + 1;
    let script = format!("trap 'exit {code}' USR1; while :; do sleep 3600 & wait; done");
    pods.create(name, &["sh", "-c", &script], false).await?;
    pods.wait(name, |moments| moments.ready).await?;
    let pod = serde_json::to_value(pods.get(name).await?)?;
    let pid = swiftlet_tests::demo::first_process(cgroup_root, &pod).context("find the process")?;
    wait_for_trap(pid).await;
    tokio::time::sleep(delay).await;
    let (signal, expected) = if number.is_multiple_of(2) {
        (Signal::SIGKILL, 137)
    } else {
        (Signal::SIGUSR1, code)
    };
    let start = Instant::now();
    kill(Pid::from_raw(pid), signal)?;
    let (at, found) = pods.wait(name, |moments| moments.terminated).await?;
    if found != expected {
        eprintln!("{name}: exit code {found}, expected {expected}");
    }
    Ok((at.saturating_duration_since(start), found == expected))
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
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
