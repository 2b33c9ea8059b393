//! A pod's way through the system, put together from three clocks that are one: the control plane's
//! log, the node's log, and a watch by the real kubectl.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::kubectl::Kubectl;

/// Phases in the order in which a person expects them, with the words to print.
pub const PHASES: [(&str, &str); 14] = [
    ("api_received", "API call"),
    ("stored", "stored"),
    ("scheduled", "scheduled"),
    ("received", "received by the node"),
    ("cgroup_ready", "cgroup ready"),
    ("sandbox_asked", "sandbox begun"),
    ("volumes_ready", "  beside it: volumes ready"),
    ("image_ready", "  beside it: image ready"),
    ("configured", "  beside it: container configured"),
    ("network_attached", "network attached"),
    ("sandbox_up", "sandbox up"),
    ("container_started", "container started (kernel)"),
    ("running_stored", "status stored"),
    ("watched", "Running and Ready seen by a watch"),
];

/// Moments of each pod by name, in microseconds since the Unix epoch.
pub type Timelines = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds the timeline records of a JSON log. The first record of a phase counts.
pub fn read_log(log: &Path, into: &mut Timelines) -> Result<()> {
    let file =
        std::fs::File::open(log).with_context(|| format!("cannot read {}", log.display()))?;
    for line in BufReader::new(file).lines() {
        let Ok(record) = serde_json::from_str::<Value>(&line?) else {
            continue;
        };
        if record["target"] != "swiftlet::timeline" {
            continue;
        }
        let fields = &record["fields"];
        let (Some(pod), Some(phase), Some(at)) = (
            fields["pod"].as_str(),
            fields["phase"].as_str(),
            fields["at_us"].as_u64(),
        ) else {
            continue;
        };
        let name = pod.rsplit('/').next().unwrap_or(pod);
        into.entry(name.to_owned())
            .or_default()
            .entry(phase.to_owned())
            .or_insert(at);
    }
    Ok(())
}

/// What one line of the watch says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When the line was read.
    pub at_us: u64,
    /// `metadata.name`.
    pub name: String,
    /// `status.phase`.
    pub phase: String,
    /// The Ready condition.
    pub ready: bool,
    /// Restarts of the first container.
    pub restarts: String,
    /// Exit code of the first container, now or before its restart.
    pub exit_code: Option<i32>,
}

/// `kubectl get pods --watch`, with the moment of each line.
pub struct Watch {
    child: Child,
    lines: Arc<Mutex<Vec<Seen>>>,
}

const COLUMNS: &str = "custom-columns=N:.metadata.name,P:.status.phase,\
R:.status.conditions[?(@.type==\"Ready\")].status,C:.status.containerStatuses[0].restartCount,\
T:.status.containerStatuses[0].state.terminated.exitCode,\
L:.status.containerStatuses[0].lastState.terminated.exitCode";

impl Watch {
    /// Starts watching the pods of the default namespace.
    pub fn start(kubectl: &Kubectl) -> Result<Self> {
        let arguments = ["get", "pods", "--watch", "--no-headers", "-o", COLUMNS];
        let mut child = kubectl
            .command(&arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().context("piped")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let at_us = now_us();
                let seen = parse(&line, at_us);
                sink.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend(seen);
            }
        });
        Ok(Self { child, lines })
    }

    /// Everything seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The first line for which `wanted` holds.
    pub fn find(&self, wanted: impl Fn(&Seen) -> bool) -> Option<Seen> {
        self.seen().into_iter().find(wanted)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn parse(line: &str, at_us: u64) -> Option<Seen> {
    let mut fields = line.split_whitespace();
    let name = fields.next()?.to_owned();
    let phase = fields.next()?.to_owned();
    let ready = fields.next()? == "True";
    let restarts = fields.next()?.to_owned();
    let exit_code = fields.find_map(|field| field.parse().ok());
    Some(Seen {
        at_us,
        name,
        phase,
        ready,
        restarts,
        exit_code,
    })
}

/// The time now, in microseconds since the Unix epoch.
pub fn now_us() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// One line per phase, in milliseconds from the first one.
pub fn print(pod: &str, moments: &BTreeMap<String, u64>) {
    let Some(start) = moments
        .get("api_received")
        .or_else(|| moments.values().min())
    else {
        println!("  {pod}: no record");
        return;
    };
    println!("  pod {pod}");
    for (phase, words) in PHASES {
        match moments.get(phase) {
            Some(at) => println!("    {words:<36} {:>8} ms", milliseconds(*at, *start)),
            None => println!("    {words:<36}        –"),
        }
    }
}

/// The time between two moments, in milliseconds with one decimal.
pub fn milliseconds(at_us: u64, start_us: u64) -> String {
    let tenths = at_us.saturating_sub(start_us).div_ceil(100);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_watch_is_understood_with_and_without_exit_codes() {
        let seen = parse("web   Running   True   1   <none>   137", 5).expect("a line");
        assert_eq!(
            (seen.restarts.as_str(), seen.exit_code, seen.ready),
            ("1", Some(137), true)
        );
        let seen = parse("web   Pending   <none>   <none>   <none>   <none>", 5).expect("a line");
        assert_eq!((seen.exit_code, seen.ready), (None, false));
        assert_eq!(parse("", 5), None);
    }

    #[test]
    fn milliseconds_are_rounded_up_to_a_tenth() {
        assert_eq!(milliseconds(1_000_050, 1_000_000), "0.1");
        assert_eq!(milliseconds(1_019_300, 1_000_000), "19.3");
        assert_eq!(milliseconds(1, 2), "0.0");
    }
}
