//! When a row of answers becomes a verdict. Pure; the rules are those of
//! `pkg/kubelet/prober/worker.go`.

use k8s_openapi::api::core::v1::Probe;

/// How many answers of one kind in a row make a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    success: u32,
    failure: u32,
    /// The newest kind of answer and how many of it there are in a row.
    row: Option<(bool, u32)>,
}

impl Thresholds {
    /// The thresholds of a probe: 1 success and 3 failures if it names none
    /// (`SetDefaults_Probe` in `pkg/apis/core/v1`).
    pub(crate) fn of(probe: &Probe) -> Self {
        let at_least_one = |wanted: Option<i32>, default: u32| {
            let wanted = wanted.filter(|wanted| *wanted > 0);
            wanted.map_or(default, i32::unsigned_abs)
        };
        Self {
            success: at_least_one(probe.success_threshold, 1),
            failure: at_least_one(probe.failure_threshold, 3),
            row: None,
        }
    }

    /// A failure that does not count still ends a row of successes.
    pub(crate) fn interrupt(&mut self) {
        if self.row.is_some_and(|(passed, _)| passed) {
            self.row = None;
        }
    }

    /// Takes an answer in; the verdict, once there are enough of its kind.
    pub(crate) fn count(&mut self, passed: bool) -> Option<bool> {
        let run = match self.row {
            Some((before, run)) if before == passed => run.saturating_add(1),
            _ => 1,
        };
        self.row = Some((passed, run));
        let enough = if passed { self.success } else { self.failure };
        (run >= enough).then_some(passed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_verdict_needs_as_many_equal_answers_in_a_row_as_the_threshold_says(
            answers in prop::collection::vec(any::<bool>(), 0..40),
            success in 1_i32..5,
            failure in 1_i32..5,
        ) {
            let mut thresholds = Thresholds::of(&Probe {
                success_threshold: Some(success),
                failure_threshold: Some(failure),
                ..Probe::default()
            });
            for end in 0..answers.len() {
                let newest = answers[end];
                let row = answers[..=end].iter().rev().take_while(|one| **one == newest).count();
                let enough = if newest { success } else { failure };
                let expected = (row >= usize::try_from(enough).unwrap()).then_some(newest);
                prop_assert_eq!(thresholds.count(newest), expected);
            }
        }
    }
}
