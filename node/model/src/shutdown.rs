//! The machine's word that it is being switched off.

use std::time::Duration;

use futures::future::BoxFuture;

/// Hears of a shutdown, and has it wait.
pub trait ShutdownSignals: Send + Sync {
    /// Asks the machine to wait this long, at most, when it shuts down.
    fn delay(&self, limit: Duration) -> BoxFuture<'_, Result<(), ShutdownError>>;

    /// Waits for the next word: `true`, it shuts down; `false`, it goes on after all. `None`: there
    /// will be none.
    fn next(&self) -> BoxFuture<'_, Option<bool>>;

    /// The machine need not wait any longer.
    fn release(&self) -> BoxFuture<'_, ()>;
}

/// Why the machine does not wait.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot delay a shutdown: {0}")]
pub struct ShutdownError(
    /// What was said.
    pub String,
);
