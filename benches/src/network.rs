//! CNI ADD and DEL: in the node, and by the reference plugins in the same run.
//!
//! ```text
//! node        the request over the node's socket, as if nobody had to start a program
//! shim        the program that containerd starts, which asks the node
//! reference   bridge (which starts host-local) and portmap, as containerd starts a chain of them
//! ```
//!
//! The ways take turns, batch by batch. Hosts and pods are network namespaces of this process:
//! whatever ends it, they are gone with it. Needs root; touches no interface of the machine.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;
use swiftlet_sys::netns;

use crate::setup;
use crate::stats::{Samples, print};

mod prepared;
mod site;

use site::{Pod, Site, Way};

/// How long the kernel may take to clean up the namespaces of a batch.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(30);

/// Options of `network`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Pods per figure.
    #[arg(short, long, default_value_t = 192)]
    n: usize,
    /// How many pods at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32])]
    parallel: Vec<usize>,
    /// Numbers of workers to compare, at the largest number of pods at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8])]
    workers: Vec<usize>,
    /// The program that containerd starts.
    #[arg(long, default_value = "target/static/swiftlet-cni")]
    shim: PathBuf,
    /// Folder of the reference plugins.
    #[arg(long, default_value = "/usr/lib/cni")]
    plugins: PathBuf,
    /// Print one JSON document in the schema of perf-tests (PerfData) instead of a table.
    #[arg(long)]
    json: bool,
}

/// ADD and DEL of one way at one number of pods at once.
struct Figure {
    add: Samples,
    del: Samples,
    failures: usize,
    parallel: usize,
}

/// What one pod took, or why it failed.
struct Outcome {
    add: Result<Duration>,
    del: Result<Duration>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let shim = arguments.shim.canonicalize();
    let shim = shim.with_context(|| format!("no {}: make static", arguments.shim.display()))?;
    if !arguments.json {
        println!("{}", describe(arguments));
    }
    let node = Site::node(&shim, None)?;
    let reference = Site::reference(&arguments.plugins)?;
    let mut figures = Vec::new();
    for &parallel in &arguments.parallel {
        figures.extend(compare(&node, &reference, arguments.n, parallel)?);
    }
    drop((node, reference));
    let most = arguments.parallel.iter().copied().max().unwrap_or(1);
    let workers = compare_workers(arguments, &shim, most)?;
    let pool = prepared::compare(arguments.n, &arguments.parallel)?;
    report(&figures, &workers, &pool, arguments.json);
    Ok(())
}

/// All ways at one number of pods at once; who begins changes from batch to batch.
fn compare(node: &Site, reference: &Site, n: usize, parallel: usize) -> Result<Vec<Figure>> {
    let ways = [Way::Node, Way::Shim, Way::Reference];
    let site = |way| match way {
        Way::Reference => reference,
        Way::Node | Way::Shim => node,
    };
    // Bridges and rules are made by the first pod of a network, which is not the figure.
    for way in ways {
        batch(site(way), way, 1)?;
    }
    let mut figures: Vec<_> = ways
        .iter()
        .map(|way| Figure::new(way.name(), parallel))
        .collect();
    for round in 0..n.div_ceil(parallel) {
        for turn in 0..ways.len() {
            let index = (round + turn) % ways.len();
            let outcomes = batch(site(ways[index]), ways[index], parallel)?;
            figures[index].take(outcomes);
        }
    }
    Ok(figures)
}

/// The node with more and fewer threads, by the time that one batch takes from first to last.
fn compare_workers(arguments: &Arguments, shim: &Path, parallel: usize) -> Result<Vec<Figure>> {
    let sites = arguments
        .workers
        .iter()
        .map(|&count| Site::node(shim, Some(count)));
    let sites = sites.collect::<Result<Vec<_>>>()?;
    let mut figures = Vec::new();
    for &count in &arguments.workers {
        figures.push(Figure::new(&format!("{count} workers"), parallel));
    }
    for site in &sites {
        batch(site, Way::Node, 1)?;
    }
    for round in 0..arguments.n.div_ceil(parallel) {
        for turn in 0..sites.len() {
            let index = (round + turn) % sites.len();
            figures[index].take(batch(&sites[index], Way::Node, parallel)?);
        }
    }
    Ok(figures)
}

/// Adds so many pods at once, then deletes them at once, and waits until nothing is left.
fn batch(site: &Site, way: Way, count: usize) -> Result<Vec<Outcome>> {
    let pods = (0..count).map(|_| Pod::new()).collect::<Result<Vec<_>>>()?;
    let barrier = &Barrier::new(count);
    let outcomes = thread::scope(|scope| {
        let run = |pod| scope.spawn(move || one(site, way, pod, barrier));
        let threads: Vec<_> = pods.iter().map(run).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined
            .map(|outcome| outcome.map_err(|_| anyhow!("a thread panicked")))
            .collect()
    });
    drop(pods);
    wait_until_clean(&site.host)?;
    outcomes
}

fn one(site: &Site, way: Way, pod: &Pod, barrier: &Barrier) -> Outcome {
    // A plugin runs in the host's namespace, as whoever starts it does.
    let entered = netns::enter(site.host.as_fd());
    barrier.wait();
    let start = Instant::now();
    let added = entered
        .context("enter the host")
        .and_then(|()| site.add(way, pod));
    let add = start.elapsed();
    barrier.wait();
    let start = Instant::now();
    let result = added.as_ref().unwrap_or(&Value::Null);
    let deleted = site.del(way, pod, result);
    let del = start.elapsed();
    Outcome {
        add: added.map(|_| add),
        del: deleted.map(|()| del),
    }
}

/// The kernel cleans namespaces up in the background and under the lock that the next batch needs.
fn wait_until_clean(host: &OwnedFd) -> Result<()> {
    netns::run_in(host.as_fd(), || {
        let limit = Instant::now() + CLEAN_UP_LIMIT;
        // Not below /proc/self, which is the namespace of the process' first thread.
        let links = || std::fs::read_to_string("/proc/thread-self/net/dev");
        while links()?
            .lines()
            .any(|line| line.trim_start().starts_with("veth"))
        {
            if Instant::now() > limit {
                bail!("veth pairs are left in the host's namespace");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    })?
}

impl Figure {
    fn new(name: &str, parallel: usize) -> Self {
        Self {
            add: Samples::new(format!("ADD {name}, {parallel} at once")),
            del: Samples::new(format!("DEL {name}, {parallel} at once")),
            failures: 0,
            parallel,
        }
    }

    fn take(&mut self, outcomes: Vec<Outcome>) {
        for Outcome { add, del } in outcomes {
            for (samples, outcome) in [(&mut self.add, add), (&mut self.del, del)] {
                match outcome {
                    Ok(took) => samples.push(took),
                    Err(error) => {
                        eprintln!("{error:#}");
                        self.failures += 1;
                    }
                }
            }
        }
    }
}

fn report(figures: &[Figure], workers: &[Figure], pool: &[prepared::Figure], json: bool) {
    let mut samples: Vec<_> = figures.iter().map(|figure| &figure.add).collect();
    samples.extend(figures.iter().map(|figure| &figure.del));
    samples.extend(workers.iter().map(|figure| &figure.add));
    samples.extend(
        pool.iter()
            .flat_map(|figure| [&figure.created, &figure.prepared]),
    );
    let failed = |figures: &[Figure]| figures.iter().map(|one| one.failures).sum::<usize>();
    print(&samples, failed(figures) + failed(workers), json);
    if json {
        return;
    }
    for ways in figures.chunks(Way::COUNT) {
        let [node, shim, reference] = ways else {
            continue;
        };
        let at_once = reference.parallel;
        for (name, samples) in [("node", node), ("shim", shim)] {
            let add = samples.add.ratio_of_medians(&reference.add);
            let del = samples.del.ratio_of_medians(&reference.del);
            println!("{name} to reference, {at_once} at once: ADD {add:.3}x, DEL {del:.3}x");
        }
    }
    for figure in pool {
        let ratio = figure.prepared.ratio_of_medians(&figure.created);
        let at_once = figure.parallel;
        println!("prepared pair to a pair on demand, {at_once} at once: {ratio:.2}x");
    }
}

fn describe(arguments: &Arguments) -> String {
    format!(
        "# {}, {} cores, reference plugins of {}, one bridge, isGateway, ipMasq, hairpinMode",
        setup::kernel(),
        thread::available_parallelism().map_or(0, usize::from),
        arguments.plugins.display(),
    )
}
