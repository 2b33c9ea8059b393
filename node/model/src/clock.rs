//! Time as an argument: decisions take an [`Instant`], effects ask the [`Clock`].

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// Tells the time. The kubelet never asks the machine itself, so that tests have a clock of their
/// own.
pub trait Clock: Send + Sync {
    /// Monotonic time, for durations, back-off and deadlines.
    fn now(&self) -> Instant;

    /// Wall-clock time, for what the API shows. It may jump.
    fn timestamp(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// The latest moment at which an answer is of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub Instant);

impl Deadline {
    /// The deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now() + limit)
    }

    /// What is left; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}
