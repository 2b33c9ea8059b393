//! A manifest is moved into the node's folder → the pod's process runs, as the kernel says.
//!
//! Each start is followed by a start with the three CRI calls alone on the same runtime: the floor.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use swiftlet_tests::demo::timeline::{Timelines, now_us, read_log};

use crate::Target;
use crate::cri::Floor;
use crate::pods::Pods;
use crate::setup;
use crate::stats::{Samples, print};

/// Options of `static`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// The folder that the node reads manifests from.
    #[arg(long)]
    manifests: PathBuf,
    /// The node's log as JSON, with what it says of pods' starts.
    #[arg(long)]
    node_log: PathBuf,
    /// The node's name, which the names of its pods end with.
    #[arg(long)]
    node_name: String,
    /// Socket of the runtime.
    #[arg(long, value_name = "SOCKET")]
    floor: PathBuf,
    /// How many pods, one after another.
    #[arg(short, long, default_value_t = 30)]
    n: usize,
}

pub(crate) async fn run(arguments: Arguments) -> Result<()> {
    let client = arguments.target.client().await?;
    println!("{}", setup::describe(&client).await?);
    let pods = Pods::start(client, &arguments.target).await?;
    let mut floor = Floor::new(&arguments.floor, &arguments.target.image);
    let (mut written, mut failures) = (Vec::new(), 0);
    for number in 0..arguments.n {
        floor.once(number).await?;
        let name = format!("static-{number}");
        match one(&pods, &arguments, &name).await {
            Ok(at) => written.push((name, at)),
            Err(error) => {
                eprintln!("{name}: {error:#}");
                failures += 1;
            }
        }
    }
    let figures = figures(&arguments, &written)?;
    failures += written.len() - figures.started.len();
    let mut samples = vec![&figures.received, &figures.started];
    samples.extend(floor.samples());
    print(&samples, failures, arguments.target.json);
    floor.clean_up().await?;
    let (ours, theirs) = (
        figures.started.percentile_ms(50),
        floor.total().percentile_ms(50),
    );
    println!(
        "file -> process: p50 is the three CRI calls' p50 {:+.1} ms",
        ours - theirs
    );
    Ok(())
}

/// Starts one pod and ends it; answers the moment before its manifest had its name.
async fn one(pods: &Pods, arguments: &Arguments, name: &str) -> Result<u64> {
    let file = arguments.manifests.join(format!("{name}.json"));
    let unfinished = arguments.manifests.join(format!(".{name}"));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": arguments.target.namespace,
            "labels": {"app": "swiftlet-bench"},
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main",
                "image": arguments.target.image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "3600"],
            }],
        },
    });
    std::fs::write(&unfinished, pod.to_string())?;
    let at = now_us();
    std::fs::rename(&unfinished, &file).context("move the manifest in")?;
    // The API shows a static pod under a name of its own.
    let shown = format!("{name}-{}", arguments.node_name);
    let ready = pods.wait(&shown, |moments| moments.ready).await;
    std::fs::remove_file(&file)?;
    ready?;
    pods.wait(&shown, |moments| moments.gone.then_some(()))
        .await?;
    Ok(at)
}

struct Figures {
    received: Samples,
    started: Samples,
}

/// What the node's log says of them.
fn figures(arguments: &Arguments, written: &[(String, u64)]) -> Result<Figures> {
    let timelines = timelines(&arguments.node_log)?;
    let mut figures = Figures {
        received: Samples::new("file_to_received"),
        started: Samples::new("file_to_process"),
    };
    for (name, at) in written {
        let shown = format!("{name}-{}", arguments.node_name);
        let moments = timelines.get(&shown).or_else(|| timelines.get(name));
        let Some(moments) = moments else { continue };
        let since =
            |phase: &str| Some(Duration::from_micros(moments.get(phase)?.checked_sub(*at)?));
        if let Some(received) = since("received") {
            figures.received.push(received);
        }
        // Without events of the kernel, the runtime's answer counts.
        if let Some(started) = since("container_started").or_else(|| since("start_answered")) {
            figures.started.push(started);
        }
    }
    Ok(figures)
}

fn timelines(log: &Path) -> Result<Timelines> {
    let mut timelines = Timelines::new();
    read_log(log, &mut timelines)?;
    Ok(timelines)
}
