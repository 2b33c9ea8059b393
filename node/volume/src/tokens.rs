//! Tokens of service accounts: asked for once, and again before they end.
//!
//! A token is renewed when four fifths of its life are over, or after a day, and some seconds
//! earlier, so that pods that came together do not renew together. Source: `requiresRefresh`
//! (`pkg/kubelet/token/token_manager.go`).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use swiftlet_model::clock::Clock;
use swiftlet_model::control_plane::{ControlPlane, ControlPlaneError, Token, TokenRequest};
use swiftlet_model::ids::PodUid;

/// Longest time that a token is used (`maxTTL`).
const AGE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// Most that a renewal comes earlier (`maxJitter`).
const JITTER_MS_MAX: u64 = 10_000;
/// A renewal that failed is tried again after this time, while the old token is good.
const RETRY: SignedDuration = SignedDuration::from_secs(30);
/// No token is renewed sooner than this after it came, however short its life.
const AGE_MIN: SignedDuration = SignedDuration::from_secs(10);
/// Longest time that is slept without a look at the clock, which may have been set.
const LOOK_MAX: Duration = Duration::from_hours(1);

#[derive(Debug)]
struct Known {
    token: Token,
    renew_at: Timestamp,
}

/// The tokens of the pods of this node. The lock is held for a look-up and never across a wait; a
/// task of its own would cost more than it guards.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    known: Mutex<HashMap<TokenRequest, Known>>,
}

impl Tokens {
    /// A token that is good. One that is due, but has not ended, is better than none.
    pub(crate) async fn get(
        &self,
        control_plane: &dyn ControlPlane,
        clock: &dyn Clock,
        request: TokenRequest,
    ) -> Result<String, ControlPlaneError> {
        if let Some(token) = self.fresh(&request, clock.timestamp()) {
            return Ok(token);
        }
        let answer = control_plane.service_account_token(&request).await;
        let now = clock.timestamp();
        match answer {
            Ok(token) => {
                let text = token.token.clone();
                let renew_at = renew_at(now, token.expires_at, jitter());
                self.lock().insert(request, Known { token, renew_at });
                Ok(text)
            }
            Err(error) => self.postpone(&request, now).ok_or(error),
        }
    }

    /// How long the pod's tokens need no look; `None` if it has none.
    pub(crate) fn due(&self, pod: &PodUid, now: Timestamp) -> Option<Duration> {
        let known = self.lock();
        let of_pod = known.iter().filter(|(request, _)| request.pod.uid == *pod);
        let first = of_pod.map(|(_, known)| known.renew_at).min()?;
        let left = Duration::try_from(first.duration_since(now)).unwrap_or_default();
        Some(left.min(LOOK_MAX))
    }

    /// The pod is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.lock().retain(|request, _| request.pod.uid != *pod);
    }

    fn fresh(&self, request: &TokenRequest, now: Timestamp) -> Option<String> {
        let known = self.lock();
        let known = known.get(request).filter(|known| now < known.renew_at);
        known.map(|known| known.token.token.clone())
    }

    /// The old token, if it is good still.
    fn postpone(&self, request: &TokenRequest, now: Timestamp) -> Option<String> {
        let mut known = self.lock();
        let known = known.get_mut(request)?;
        if known.token.expires_at <= now {
            return None;
        }
        known.renew_at = now + RETRY;
        Some(known.token.token.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenRequest, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// When a token that came `now` is renewed.
fn renew_at(now: Timestamp, expires_at: Timestamp, jitter: SignedDuration) -> Timestamp {
    let life = expires_at.duration_since(now);
    let by_life = life * 4 / 5;
    now + (by_life.min(AGE_MAX) - jitter).max(AGE_MIN)
}

fn jitter() -> SignedDuration {
    // Each state has keys of its own, which come from the system's random numbers.
    let random = RandomState::new().build_hasher().finish();
    let millis = i64::try_from(random % JITTER_MS_MAX).unwrap_or_default();
    SignedDuration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_before_its_life_is_over_and_after_a_day_at_the_latest() {
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let after = |life_s: i64, jitter_s: i64| {
            let expires_at = now + SignedDuration::from_secs(life_s);
            let at = renew_at(now, expires_at, SignedDuration::from_secs(jitter_s));
            at.duration_since(now).as_secs()
        };
        assert_eq!(after(600, 0), 480);
        assert_eq!(after(3607, 9), 2876);
        assert_eq!(after(7 * 86_400, 0), 86_400);
        assert_eq!(after(1, 0), 10);
        assert_eq!(after(-5, 9), 10);
        assert!((0..10).contains(&jitter().as_secs()));
    }
}
