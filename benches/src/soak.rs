//! Pods come and go while the agent and the runtime are killed: afterwards nothing may be left.
//!
//! The stack is one of its own. Half of the pods end by themselves when they are told to, the
//! other half is deleted by force, so that the API forgets them before the node has. The last line
//! is one JSON object; the program fails if a cycle did, or if anything is left.

mod killer;
mod remains;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use swiftlet_tests::containerd::Runtime;
use swiftlet_tests::leftovers::Machine;
use swiftlet_tests::stack::{Stack, StackOptions};

use crate::Target;
use crate::pods::Pods;
use crate::stats::Samples;

use self::killer::{Killer, Kills};

/// How long a pod may take to be Ready, or to go. Kubernetes waits 10 s after a failed start and 20
/// after the next: several of them fit.
const STEP_LIMIT: Duration = Duration::from_mins(3);

/// Ends at once when it is told to.
const OBEDIENT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait; done";

/// Options of `soak`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Folder of the stack; made and removed.
    #[arg(long, default_value = "/var/lib/swiftlet-soak")]
    dir: PathBuf,
    /// Pods that are created and deleted.
    #[arg(short = 'n', long, default_value_t = 1000)]
    cycles: usize,
    /// Cycles at the same time.
    #[arg(long, default_value_t = 8)]
    parallel: usize,
    /// One kill in each so many cycles; 0 for none.
    #[arg(long, default_value_t = 20)]
    kill_every: usize,
    /// Most seconds until nothing is left. What the runtime forgot when it was killed is found by
    /// the node's second sweep, five minutes after the first one that saw it.
    #[arg(long, default_value_t = 660)]
    settle_s: u64,
    /// Restart the agent when all pods have gone: what only a sweep would find is then freed at
    /// the start.
    #[arg(long)]
    restart_agent: bool,
    /// Decides what is killed when; any if not given.
    #[arg(long)]
    seed: Option<u64>,
}

/// What the cycles came to.
#[derive(Default)]
struct Outcome {
    cycle: Samples,
    failures: Vec<String>,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("soak: seed {seed}");
    let options = StackOptions::new(&arguments.dir);
    let look = || Machine::look(&options.dir, &options.cgroup_root);
    let untouched = look();
    let begin = Instant::now();
    let stack = Stack::start(options.clone())?;
    let target = Target::of_stack(stack.kubeconfig(), &options.busybox_image);
    let pods = Pods::start(target.client().await?, &target).await?;
    // The first pod makes what stays as long as the node: the bridge, the QoS cgroups.
    cycle(&pods, 0, &target.image).await.context("first pod")?;
    let before = look();

    let begun = Arc::new(AtomicUsize::new(1));
    let killer = Killer::start(stack, &arguments, seed, &begun);
    let lanes = (0..arguments.parallel).map(|_| lane(&pods, &begun, &arguments, &target.image));
    let lanes = join_all(lanes).await;
    let (mut stack, kills) = killer.end().await?;
    let mut outcome = Outcome::default();
    for lane in lanes {
        outcome.cycle.append(lane.cycle);
        outcome.failures.extend(lane.failures);
    }
    outcome.failures.extend(kills.failures.iter().cloned());

    if arguments.restart_agent {
        stack.restart_node_with(|_| ())?;
    }
    let all_gone = Instant::now();
    let limit = Duration::from_secs(arguments.settle_s);
    let left = remains::when_settled(limit, &options, &stack.runtime_socket(), &before);
    let settled = all_gone.elapsed();
    let mut leaks = left.leaks;
    stack.remove()?;
    let after = look().since(&untouched);
    leaks.extend(after.iter().map(|line| format!("after the stack: {line}")));
    let mut summary = summary(&arguments, seed, &kills, &outcome)?;
    summary["settled_s"] = settled.as_secs().into();
    summary["seconds"] = begin.elapsed().as_secs().into();
    summary["empty_shims"] = left.empty_shims.into();
    summary["leaks"] = leaks.clone().into();
    println!("{summary}");
    if !outcome.failures.is_empty() || !leaks.is_empty() {
        bail!("{} failures, {} leaks", outcome.failures.len(), leaks.len());
    }
    Ok(())
}

/// Cycle after cycle as long as there are any.
async fn lane(pods: &Pods, begun: &AtomicUsize, arguments: &Arguments, image: &str) -> Outcome {
    let mut outcome = Outcome::default();
    loop {
        let number = begun.fetch_add(1, Ordering::SeqCst);
        if number > arguments.cycles {
            return outcome;
        }
        let begin = Instant::now();
        match cycle(pods, number, image).await {
            Ok(()) => outcome.cycle.push(begin.elapsed()),
            Err(error) => {
                let state = pods.get(&name_of(number)).await.ok();
                let status = state.and_then(|pod| serde_json::to_string(&pod.status).ok());
                let status = status.unwrap_or_else(|| "not in the API".to_owned());
                eprintln!("soak: cycle {number}: {error:#}: {status}");
                outcome.failures.push(format!("cycle {number}: {error:#}"));
                pods.delete(&name_of(number)).await.ok();
            }
        }
    }
}

fn name_of(number: usize) -> String {
    format!("soak-{number}")
}

/// One pod's life.
async fn cycle(pods: &Pods, number: usize, image: &str) -> Result<()> {
    let name = name_of(number);
    pods.create_pod(&pod(&name, image)?).await?;
    pods.wait_within(STEP_LIMIT, &name, |moments| moments.ready)
        .await
        .context("Ready")?;
    if number.is_multiple_of(2) {
        pods.delete_gracefully(&name).await?;
    } else {
        pods.delete(&name).await?;
    }
    pods.wait_within(STEP_LIMIT, &name, |moments| moments.gone.then_some(()))
        .await
        .context("gone")
}

/// A container that dies with its runtime's call may have run: only a restart brings it back.
fn pod(name: &str, image: &str) -> Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "swiftlet-bench"}},
        "spec": {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", OBEDIENT],
            }],
        },
    }))?)
}

fn summary(arguments: &Arguments, seed: u64, kills: &Kills, outcome: &Outcome) -> Result<Value> {
    let (major, minor) = Runtime::of_environment()?.version();
    let at = |percent| outcome.cycle.percentile_ms(percent);
    Ok(json!({
        "bench": "soak",
        "containerd": format!("{major}.{minor}"),
        "cycles": outcome.cycle.len(),
        "parallel": arguments.parallel,
        "seed": seed,
        "kills": {"agent": kills.agent, "runtime": kills.runtime, "both": kills.both},
        "cycle_ms": {"p50": at(50), "p90": at(90), "p99": at(99), "max": at(100)},
        "failures": outcome.failures,
    }))
}
