//! Exponential back-off without jitter: one process asks one server, there is no herd to spread.

use std::time::Duration;

/// Delays that double from `first` up to `most`.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `first`, never waits longer than `most`.
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            failures: 0,
        }
    }

    /// The delay before the next attempt, after one more failure.
    pub fn fail(&mut self) -> Duration {
        let delay = delay_after(self.first, self.most, self.failures);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// It worked: start over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// `first * 2^failures`, at most `most`.
pub fn delay_after(first: Duration, most: Duration, failures: u32) -> Duration {
    let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(most)
}
