//! Waiting times that double. Pure.

use std::time::Duration;

/// First wait of a crash loop and of image pulls (`pkg/kubelet/kubelet.go`, `backOffPeriod`).
pub const BACKOFF_BASE: Duration = Duration::from_secs(10);
/// Longest wait (`MaxCrashLoopBackOff`).
pub const BACKOFF_MAX: Duration = Duration::from_mins(5);
/// A container that ran this long starts its crash loop anew: twice the longest wait.
pub const BACKOFF_RESET: Duration = Duration::from_mins(10);
/// First wait after a failed call of a door: most failures are gone in an instant.
pub const RETRY_BASE: Duration = Duration::from_millis(100);
/// Longest wait after failed calls.
pub const RETRY_MAX: Duration = Duration::from_secs(20);

/// `base`, doubled `doublings` times, `max` at most.
pub fn doubled(base: Duration, doublings: u32, max: Duration) -> Duration {
    // 2^31 times any base used here is beyond any limit.
    base.checked_mul(1 << doublings.min(31))
        .unwrap_or(max)
        .min(max)
}

/// How long a container waits whose `crashes`-th run in a row has ended, `max` at most: the first
/// restart is free.
pub fn crash_loop(crashes: u32, max: Duration) -> Duration {
    match crashes {
        0 => Duration::ZERO,
        more => doubled(BACKOFF_BASE, more - 1, max),
    }
}

/// How long a call waits that has failed `failures` times.
pub fn retry(failures: u32) -> Duration {
    doubled(RETRY_BASE, failures.saturating_sub(1), RETRY_MAX)
}

/// How long a pull waits that has failed `failures` times.
pub fn pull(failures: u32) -> Duration {
    doubled(BACKOFF_BASE, failures.saturating_sub(1), BACKOFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_free_and_the_wait_doubles_up_to_five_minutes() {
        let waits: Vec<u64> = (0..8)
            .map(|crashes| crash_loop(crashes, BACKOFF_MAX).as_secs())
            .collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(crash_loop(u32::MAX, BACKOFF_MAX), BACKOFF_MAX);
        let short = Duration::from_secs(1);
        assert_eq!(crash_loop(1, short), short, "a node may wait less");
    }
}
