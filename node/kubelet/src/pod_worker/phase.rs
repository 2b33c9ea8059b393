//! The life of a pod on this node.
//!
//! ```text
//!            End: deleted, vanished, rejected, or all has ended
//!   Sync ─────────────────────────────▶ Terminating ◀─┐ End again: the cause grows stronger,
//!   starts and restarts                 │ stops       ─┘ the deadline only comes nearer
//!                                       │ Stopped: nothing runs
//!                                       ▼
//!                                    Terminated ◀─┐ End again: a completed pod is deleted
//!                                       │ cleans ─┘
//!                                       │ Gone: nothing is left, and the control plane knows
//!                                       ▼
//!                                    Finished
//! ```
//!
//! There is no way back: containers are started in `Sync` alone.

use std::time::Instant;

/// Why a pod ends; a later one is stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The node did not take it.
    Rejected,
    /// All its containers have ended and none starts again.
    Completed,
    /// The node ends it: evicted, or its time is over.
    Failed,
    /// Its object is being deleted.
    Deleted,
    /// Its object is gone.
    Vanished,
}

impl Cause {
    /// Whether nothing of the pod shall stay on the node.
    pub(crate) fn is_leaving(self) -> bool {
        matches!(self, Self::Deleted | Self::Vanished)
    }
}

/// Why, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// Why.
    pub(crate) cause: Cause,
    /// When the grace period is over: fixed when first seen, later only nearer.
    pub(crate) deadline: Instant,
}

impl Ending {
    fn and(self, other: Self) -> Self {
        Self {
            cause: self.cause.max(other.cause),
            deadline: self.deadline.min(other.deadline),
        }
    }
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It shall run.
    Sync,
    /// It is being stopped.
    Terminating(Ending),
    /// Nothing runs; what is left is cleaned up, or waits to be deleted.
    Terminated(Ending),
    /// Nothing is left.
    Finished,
}

/// A step from one phase to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The pod shall end.
    End(Ending),
    /// Nothing runs any more.
    Stopped,
    /// Nothing is left.
    Gone,
}

/// A step that the present phase does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pod that is {phase:?} cannot take the step {step:?}")]
pub(crate) struct IllegalStep {
    /// The phase.
    pub(crate) phase: Phase,
    /// The step.
    pub(crate) step: Step,
}

impl Phase {
    /// The phase after `step`.
    pub(crate) fn after(self, step: Step) -> Result<Self, IllegalStep> {
        match (self, step) {
            (Self::Sync, Step::End(ending)) => Ok(Self::Terminating(ending)),
            (Self::Terminating(before), Step::End(ending)) => {
                Ok(Self::Terminating(before.and(ending)))
            }
            (Self::Terminated(before), Step::End(ending)) => {
                Ok(Self::Terminated(before.and(ending)))
            }
            (Self::Terminating(ending), Step::Stopped) => Ok(Self::Terminated(ending)),
            (Self::Terminated(ending), Step::Gone) if ending.cause.is_leaving() => {
                Ok(Self::Finished)
            }
            (phase, step) => Err(IllegalStep { phase, step }),
        }
    }

    /// Why the pod ends, if it does.
    pub(crate) fn ending(self) -> Option<Ending> {
        match self {
            Self::Terminating(ending) | Self::Terminated(ending) => Some(ending),
            Self::Sync | Self::Finished => None,
        }
    }

    /// Whether the pod's requests still count on this node.
    pub(crate) fn is_active(self) -> bool {
        matches!(self, Self::Sync | Self::Terminating(_))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn rank(phase: Phase) -> u8 {
        match phase {
            Phase::Sync => 0,
            Phase::Terminating(_) => 1,
            Phase::Terminated(_) => 2,
            Phase::Finished => 3,
        }
    }

    fn step() -> impl Strategy<Value = (u8, u8, u64)> {
        (0_u8..3, 0_u8..4, 0_u64..60)
    }

    proptest! {
        #[test]
        fn a_pod_never_goes_back_and_its_deadline_only_comes_nearer(
            steps in prop::collection::vec(step(), 0..20)
        ) {
            let start = Instant::now();
            let causes = [Cause::Rejected, Cause::Failed, Cause::Deleted, Cause::Vanished];
            let mut phase = Phase::Sync;
            for (kind, cause, seconds) in steps {
                let deadline = start + Duration::from_secs(seconds);
                let step = match kind {
                    0 => Step::End(Ending { cause: causes[usize::from(cause)], deadline }),
                    1 => Step::Stopped,
                    _ => Step::Gone,
                };
                match phase.after(step) {
                    Ok(next) => {
                        prop_assert!(rank(next) >= rank(phase));
                        if let (Some(old), Some(new)) = (phase.ending(), next.ending()) {
                            prop_assert!(new.deadline <= old.deadline && new.cause >= old.cause);
                        }
                        phase = next;
                    }
                    Err(refused) => prop_assert_eq!(refused, IllegalStep { phase, step }),
                }
            }
        }
    }
}
