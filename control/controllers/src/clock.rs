//! The wall clock, as an argument.

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time that objects bear. Cheap to clone.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock of one's own.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

/// The machine's clock.
impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}
