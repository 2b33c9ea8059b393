//! Kills the agent, the runtime or both in turns while pods come and go, at moments by a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use fastrand::Rng;
use swiftlet_tests::process::Process;
use swiftlet_tests::stack::Stack;
use tokio::task::JoinHandle;

use super::Arguments;

/// How long after a cycle's begin a kill may come, in milliseconds: within the start of its pod or
/// within the stop of another.
const DELAY_MS_MAX: u64 = 500;

/// How long an agent may be away, in milliseconds.
const AWAY_MS_MAX: u64 = 2_000;

/// Pause between two looks at the count of cycles.
const POLL: Duration = Duration::from_millis(5);

/// What was killed.
#[derive(Debug, Default)]
pub(super) struct Kills {
    pub(super) agent: usize,
    pub(super) runtime: usize,
    pub(super) both: usize,
    /// What went wrong with it, or ended without being killed.
    pub(super) failures: Vec<String>,
}

/// The thread that kills; it holds the stack meanwhile.
pub(super) struct Killer {
    task: JoinHandle<(Stack, Kills)>,
    stopped: Arc<AtomicBool>,
}

impl Killer {
    /// Kills something once in each `kill_every` cycles that begin.
    pub(super) fn start(
        mut stack: Stack,
        arguments: &Arguments,
        seed: u64,
        begun: &Arc<AtomicUsize>,
    ) -> Self {
        let stopped = Arc::<AtomicBool>::default();
        let (period, last) = (arguments.kill_every, arguments.cycles);
        let (begun, is_stopped) = (begun.clone(), stopped.clone());
        let task = tokio::task::spawn_blocking(move || {
            let mut kills = Kills::default();
            for (at, mut draw) in schedule(seed, period, last) {
                while begun.load(Ordering::SeqCst) < at && !is_stopped.load(Ordering::SeqCst) {
                    std::thread::sleep(POLL);
                }
                if let Err(error) = kills.once(&mut stack, &mut draw) {
                    kills
                        .failures
                        .push(format!("kill at cycle {at}: {error:#}"));
                }
            }
            kills.notice_deaths(&stack);
            (stack, kills)
        });
        Self { task, stopped }
    }

    /// Waits for the last kill; answers the stack, of which everything runs.
    pub(super) async fn end(self) -> Result<(Stack, Kills)> {
        self.stopped.store(true, Ordering::SeqCst);
        self.task.await.context("the killer ended")
    }
}

/// After the begin of which cycle something is killed, and the draws that decide what and when.
fn schedule(seed: u64, period: usize, last: usize) -> Vec<(usize, Rng)> {
    let mut draw = Rng::with_seed(seed);
    if period == 0 {
        return Vec::new();
    }
    let turns = 0..last / period;
    let at = |turn| (turn * period + 1 + draw.usize(..period), draw.fork());
    turns.map(at).collect()
}

impl Kills {
    fn once(&mut self, stack: &mut Stack, draw: &mut Rng) -> Result<()> {
        std::thread::sleep(Duration::from_millis(draw.u64(..DELAY_MS_MAX)));
        self.notice_deaths(stack);
        let away = Duration::from_millis(draw.u64(..AWAY_MS_MAX));
        // In turns, so that a short run has all three.
        match (self.agent + self.runtime + self.both) % 3 {
            0 => {
                self.agent += 1;
                stack.kill_node()?;
                std::thread::sleep(away);
                stack.start_node()
            }
            1 => {
                self.runtime += 1;
                stack.crash_containerd()
            }
            _ => {
                self.both += 1;
                stack.kill_node()?;
                stack.crash_containerd()?;
                std::thread::sleep(away);
                stack.start_node()
            }
        }
    }

    /// An agent that ended by itself is a failure, and not hidden by the next kill.
    fn notice_deaths(&mut self, stack: &Stack) {
        for (name, process) in [("agent", stack.node()), ("control plane", stack.control())] {
            if !process.is_some_and(Process::is_running) {
                self.failures.push(format!("the {name} ended by itself"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_one_schedule_with_a_kill_in_each_period() {
        let cycles =
            |seed| -> Vec<_> { schedule(seed, 20, 1000).iter().map(|one| one.0).collect() };
        assert_eq!(cycles(7), cycles(7));
        assert_ne!(cycles(7), cycles(8));
        let turns: Vec<_> = cycles(7).iter().map(|at| (at - 1) / 20).collect();
        assert_eq!(turns, (0..50).collect::<Vec<_>>());
        assert!(schedule(7, 0, 1000).is_empty());
    }
}
