//! How often a probe may say the same. Pure. A probe that fails each second must not make an Event
//! each second; the numbers are those of `EventCorrelator` in `client-go/tools/record`.

use std::time::{Duration, Instant};

/// An unchanged text is said again after this time.
const REPEAT: Duration = Duration::from_mins(10);
/// Texts that may follow each other at once.
const BURST: u32 = 25;
/// After a burst, one text in this time.
const REFILL: Duration = Duration::from_mins(5);

/// What a probe has said lately.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    last: Option<(String, Instant)>,
    /// Texts of the present burst, and when it began or was last refilled.
    burst: Option<(u32, Instant)>,
}

impl Quiet {
    /// Whether `text` may be said now; if so it counts as said.
    pub(crate) fn allows(&mut self, text: &str, now: Instant) -> bool {
        let same = |(last, at): &(String, Instant)| last == text && now < *at + REPEAT;
        if self.last.as_ref().is_some_and(same) {
            return false;
        }
        let (said, since) = self.burst.unwrap_or((0, now));
        let refills = now.saturating_duration_since(since).as_secs() / REFILL.as_secs();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        let said = said.saturating_sub(refills);
        if said >= BURST {
            return false;
        }
        let since = if refills > 0 { now } else { since };
        self.burst = Some((said + 1, since));
        self.last = Some((text.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_not_repeated_and_new_ones_have_a_limit() {
        let (mut quiet, start) = (Quiet::default(), Instant::now());
        assert!(quiet.allows("a", start));
        assert!(!quiet.allows("a", start + Duration::from_secs(1)));
        let mut said = 0;
        for number in 0..100 {
            said += u32::from(quiet.allows(&number.to_string(), start + Duration::from_secs(2)));
        }
        assert_eq!(said, BURST - 1);
        assert!(quiet.allows("b", start + REFILL));
        assert!(!quiet.allows("c", start + REFILL));
    }
}
