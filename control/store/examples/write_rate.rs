//! Durable writes per second: `cargo run --release --example write_rate [writers [seconds [dir]]]`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use swiftlet_store::{Durability, Expect, Op, Store, StoreOptions, Template};

/// Size of one object.
const VALUE_BYTES: usize = 1024;
/// Keys that each writer takes turns with.
const KEYS: usize = 1000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let writers: usize = args.next().map_or(Ok(64), |text| text.parse())?;
    let seconds: u64 = args.next().map_or(Ok(5), |text| text.parse())?;
    let dir = args.next().map_or_else(
        || std::env::temp_dir().join(format!("swiftlet-write-rate-{}", std::process::id())),
        PathBuf::from,
    );
    let (store, report) = Store::open(StoreOptions::new(&dir)).await?;
    println!("opened: {report:?}");
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let syncs_before = store.stats().syncs;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| tokio::spawn(write_until(store.clone(), writer, end)))
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await?);
    }
    let elapsed = begin.elapsed();
    latencies.sort_unstable();
    let count = latencies.len();
    let rate = u128::try_from(count)? * 1000 / elapsed.as_millis();
    let at = |percent: usize| latencies[(count - 1) * percent / 100];
    let syncs = store.stats().syncs - syncs_before;
    let mode = store
        .file_mode()
        .map_or("no files".into(), |mode| mode.to_string());
    println!(
        "n={count} writers={writers} writes/s={rate} p50={:?} p99={:?}",
        at(50),
        at(99)
    );
    println!(
        "fsyncs={syncs} writes/fsync={} files by {mode}",
        count as u64 / syncs.max(1)
    );
    store.shutdown().await;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

async fn write_until(store: Store, writer: usize, end: Instant) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let value = Template::with_slot(vec![b'x'; VALUE_BYTES], VALUE_BYTES / 2);
    while Instant::now() < end {
        let key = format!("/registry/pods/default/{writer}-{}", latencies.len() % KEYS);
        let op = Op::Put {
            key: key.into(),
            value: value.clone(),
            expect: Expect::Any,
            durability: Durability::Journal,
        };
        let begin = Instant::now();
        store.write(op).await.expect("the disk has room");
        latencies.push(begin.elapsed());
    }
    latencies
}
