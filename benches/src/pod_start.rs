//! create → Running and Ready as a watch sees it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use futures::future::join_all;
use futures::stream::{self, StreamExt};

use crate::Target;
use crate::cri::Floor;
use crate::phases::phases;
use crate::pods::Pods;
use crate::setup;
use crate::stats::{Samples, print};

/// Deletions in flight after a burst.
const DELETES_IN_FLIGHT: usize = 16;

/// Options of `pod-start`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// How many pods.
    #[arg(short, long, default_value_t = 30)]
    n: usize,
    /// All at once instead of one after another.
    #[arg(long)]
    burst: bool,
    /// Before each pod also measure the three CRI calls alone, on this socket (one after another
    /// only).
    #[arg(long, value_name = "SOCKET", conflicts_with = "burst")]
    floor: Option<PathBuf>,
    /// After each pod also measure one with the token of its service account, as pods have by
    /// default (one after another only).
    #[arg(long, conflicts_with = "burst")]
    token: bool,
    /// The node's log as JSON: also tell when it reached which phase (one after another only).
    #[arg(long, conflicts_with = "burst")]
    node_log: Option<PathBuf>,
}

/// The phases that a client can see.
struct Figures {
    create_call: Samples,
    scheduled: Samples,
    running: Samples,
    ready: Samples,
    failures: usize,
}

impl Figures {
    fn new() -> Self {
        Self {
            create_call: Samples::new("create_call"),
            scheduled: Samples::new("create_to_schedule"),
            running: Samples::new("create_to_run"),
            ready: Samples::new("pod_startup"),
            failures: 0,
        }
    }

    fn all(&self) -> [&Samples; 4] {
        [
            &self.create_call,
            &self.scheduled,
            &self.running,
            &self.ready,
        ]
    }
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.target.client().await?;
    if !arguments.target.json {
        println!("{}", setup::describe(&client).await?);
    }
    let pods = Pods::start(client, &arguments.target).await?;
    let mut figures = Figures::new();
    if arguments.burst {
        burst(&pods, arguments.n, &mut figures).await;
        print(&figures.all(), figures.failures, arguments.target.json);
        return Ok(());
    }
    let mut with_token = Figures::new();
    let mut floor = match &arguments.floor {
        Some(socket) => Some(Floor::new(socket, &arguments.target.image)),
        None => None,
    };
    for number in 0..arguments.n {
        if let Some(floor) = &mut floor {
            floor.once(number).await?;
        }
        let name = format!("bench-{number}");
        try_one(&pods, &name, false, &mut figures).await?;
        if arguments.token {
            try_one(&pods, &format!("{name}-token"), true, &mut with_token).await?;
        }
    }
    figures.failures += with_token.failures;
    let with_token = with_token.ready.named("pod_startup_with_token");
    let mut samples = figures.all().to_vec();
    samples.extend(arguments.token.then_some(&with_token));
    samples.extend(floor.iter().flat_map(Floor::samples));
    let phases = match &arguments.node_log {
        Some(log) => phases(log, |name| {
            name.starts_with("bench-") && !name.ends_with("-token")
        })?,
        None => Vec::new(),
    };
    samples.extend(&phases);
    print(&samples, figures.failures, arguments.target.json);
    if let Some(floor) = &floor {
        floor.clean_up().await?;
        compare(
            "create -> Ready",
            &figures.ready,
            "the three CRI calls'",
            floor.total(),
        );
    }
    if arguments.token {
        compare(
            "create -> Ready with a token",
            &with_token,
            "that without",
            &figures.ready,
        );
    }
    Ok(())
}

fn compare(what: &str, ours: &Samples, against: &str, theirs: &Samples) {
    let (ours, theirs) = (ours.percentile_ms(50), theirs.percentile_ms(50));
    println!(
        "{what}: p50 is {against} p50 {:+.1} ms ({:.2}x)",
        ours - theirs,
        ours / theirs.max(0.001)
    );
}

async fn try_one(pods: &Pods, name: &str, token: bool, figures: &mut Figures) -> Result<()> {
    if let Err(error) = one(pods, name, token, figures).await {
        eprintln!("{name}: {error:#}");
        figures.failures += 1;
    }
    pods.delete(name).await
}

async fn one(pods: &Pods, name: &str, token: bool, figures: &mut Figures) -> Result<()> {
    let (start, call) = pods.create(name, &["sleep", "3600"], token).await?;
    let seen = pods
        .wait(name, |moments| moments.ready.map(|_| *moments))
        .await?;
    figures.create_call.push(call);
    let since =
        |moment: Option<Instant>| moment.map(|moment| moment.saturating_duration_since(start));
    for (samples, moment) in [
        (&mut figures.scheduled, seen.scheduled),
        (&mut figures.running, seen.running),
        (&mut figures.ready, seen.ready),
    ] {
        if let Some(sample) = since(moment) {
            samples.push(sample);
        }
    }
    Ok(())
}

async fn burst(pods: &Pods, n: usize, figures: &mut Figures) {
    let start = Instant::now();
    let outcomes = join_all((0..n).map(|number| async move {
        let mut figures = Figures::new();
        let outcome = one(pods, &format!("bench-{number}"), false, &mut figures).await;
        (figures, outcome)
    }))
    .await;
    let elapsed = start.elapsed().as_secs_f64();
    for (part, outcome) in outcomes {
        if let Err(error) = outcome {
            eprintln!("{error:#}");
            figures.failures += 1;
        }
        figures.create_call.append(part.create_call);
        figures.scheduled.append(part.scheduled);
        figures.running.append(part.running);
        figures.ready.append(part.ready);
    }
    #[expect(clippy::cast_precision_loss, reason = "a small number of pods")]
    let rate = figures.ready.len() as f64 / elapsed;
    println!("# {n} pods at once, all Ready after {elapsed:.2} s: {rate:.1} pods/s");
    stream::iter(0..n)
        .for_each_concurrent(DELETES_IN_FLIGHT, |number| async move {
            if let Err(error) = pods.delete(&format!("bench-{number}")).await {
                eprintln!("delete bench-{number}: {error:#}");
            }
        })
        .await;
}
