//! What the kernel's events cost everybody else, how fast an end is told, and how much the ring
//! holds.
//!
//! ```text
//! untracked    fork, exec and exit of a program that nobody tracks, with and without the kernel
//!              programs attached, in turns
//! told         a container's first process is killed → the event is in the sync loop's queue
//! sustained    containers' cgroups are made and removed as fast as one thread can
//! stalled      the same for half a second while the sync loop takes nothing
//! ```
//!
//! Needs root; makes cgroups of its own and removes them.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use swiftlet_cri::Cri;
use swiftlet_model::lifecycle::{
    LIFECYCLE_QUEUE_MAX, LifecycleKind, LifecycleReceiver, PodTracker,
};
use swiftlet_pleg::{Pleg, PlegHandle, PlegOptions, Source};

use crate::stats::Samples;

mod place;

use place::Place;

/// How often the turns change: what else happens on the machine then hits both.
const TURNS: usize = 10;

/// How long cgroups are made and removed.
const SUSTAINED: Duration = Duration::from_secs(3);

/// How long the sync loop takes nothing.
const STALL: Duration = Duration::from_millis(500);

/// Longest wait for the reader to have read what the kernel wrote.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(30);

/// Options of `events`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Untracked programs per turn and kind.
    #[arg(short, long, default_value_t = 400)]
    n: usize,
    /// Kills.
    #[arg(long, default_value_t = 200)]
    kills: usize,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<()> {
    let place = Place::new()?;
    println!(
        "{:<34} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "µs", "n", "p50", "p90", "p99", "max"
    );
    let (with, without) = untracked(&place, arguments.n)?;
    print(&with);
    print(&without);
    println!(
        "with / without, medians: {:.3}",
        with.ratio_of_medians(&without)
    );
    print(&told(&place, arguments.kills).await?);
    sustained(&place).await?;
    stalled(&place).await
}

fn print(samples: &Samples) {
    let micros = |percent| samples.percentile_ms(percent) * 1000.0;
    println!(
        "{:<34} {:>5} {:>9.0} {:>9.0} {:>9.0} {:>9.0}",
        samples.name(),
        samples.len(),
        micros(50),
        micros(90),
        micros(99),
        micros(100),
    );
}

/// On the kernel's events alone: there is no runtime to list.
fn attach(place: &Place) -> Result<(PlegHandle, LifecycleReceiver)> {
    let options = PlegOptions {
        only: Some(Source::Kernel),
        relist_interval: Duration::from_hours(1),
        ..PlegOptions::default()
    };
    let (handle, events) = Pleg::start(options, Arc::new(Cri::new("/nonexistent")));
    let mode = handle.mode();
    ensure!(mode.source == Source::Kernel, "{mode}");
    handle.track(&place.uid, &place.cgroup);
    Ok((handle, events))
}

/// Fork, exec and exit of a program, with the kernel programs and without.
fn untracked(place: &Place, count: usize) -> Result<(Samples, Samples)> {
    let mut with = Samples::new("fork, exec, exit with programs");
    let mut without = Samples::new("fork, exec, exit without");
    for _ in 0..TURNS {
        let attached = attach(place)?;
        one_turn(count, &mut with)?;
        drop(attached);
        one_turn(count, &mut without)?;
    }
    Ok((with, without))
}

fn one_turn(count: usize, samples: &mut Samples) -> Result<()> {
    for _ in 0..count {
        let begun = Instant::now();
        let ended = Command::new("/bin/true").status().context("/bin/true")?;
        samples.push(begun.elapsed());
        ensure!(ended.success(), "/bin/true failed");
    }
    Ok(())
}

async fn told(place: &Place, kills: usize) -> Result<Samples> {
    let (_handle, mut events) = attach(place)?;
    let mut samples = Samples::new("kill → event");
    for number in 0..kills {
        let mut container = place.start(&format!("kill{number}"), "exec sleep 1000")?;
        next(&mut events, is_start).await?;
        let killed = Instant::now();
        container.kill()?;
        next(&mut events, |kind| !is_start(kind)).await?;
        samples.push(killed.elapsed());
        container.end()?;
    }
    Ok(samples)
}

fn is_start(kind: &LifecycleKind) -> bool {
    matches!(kind, LifecycleKind::ContainerStarted { .. })
}

async fn next(
    events: &mut LifecycleReceiver,
    wanted: impl Fn(&LifecycleKind) -> bool,
) -> Result<()> {
    let event = tokio::time::timeout(CATCH_UP_LIMIT, events.recv()).await;
    let event = event
        .context("no event in time")?
        .context("the source ended")?;
    ensure!(wanted(&event.kind), "unexpected: {event:?}");
    Ok(())
}

/// Two records a cgroup: made and removed.
async fn sustained(place: &Place) -> Result<()> {
    let (handle, _events) = attach(place)?;
    let begun = Instant::now();
    let made = place.make_and_remove(SUSTAINED)?;
    let took = begun.elapsed();
    wait_for_records(&handle, 2 * made).await?;
    let lost = handle.stats().ring_full;
    println!(
        "sustained: {:.0} events/s over {:.1} s, n {}, lost {lost}",
        rate(2 * made, took),
        took.as_secs_f64(),
        2 * made,
    );
    Ok(())
}

async fn stalled(place: &Place) -> Result<()> {
    let (handle, mut events) = attach(place)?;
    // Starts and ends until the queue is full: then the reader waits in it.
    let full = u64::try_from(LIFECYCLE_QUEUE_MAX)?;
    let mut number = 0;
    while handle.stats().started + handle.stats().died <= full {
        place.start(&format!("fill{number}"), "exit 0")?.end()?;
        number += 1;
        ensure!(number < LIFECYCLE_QUEUE_MAX, "the queue does not fill");
    }
    let before = handle.stats().kernel_events;
    let made = place.make_and_remove(STALL)?;
    let read = handle.stats().kernel_events - before;
    if read > 2 {
        bail!("the reader was not stalled: it read {read} events");
    }
    let taker = tokio::spawn(async move { while events.recv().await.is_some() {} });
    wait_for_records(&handle, before + 2 * made).await?;
    let stats = handle.stats();
    println!(
        "stalled for {} ms: {} events waited in the ring, lost {}",
        STALL.as_millis(),
        2 * made,
        stats.ring_full,
    );
    taker.abort();
    Ok(())
}

/// Waits until the reader has seen so many, counting those that were lost.
async fn wait_for_records(handle: &PlegHandle, count: u64) -> Result<()> {
    let give_up = Instant::now() + CATCH_UP_LIMIT;
    loop {
        let stats = handle.stats();
        if stats.kernel_events + stats.ring_full >= count {
            return Ok(());
        }
        ensure!(
            Instant::now() < give_up,
            "{count} events are missing: {stats:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count is far below 2^52")]
fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
