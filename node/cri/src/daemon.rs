//! Which process answers at the runtime's socket.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// What is done when another process answers than before.
type Hook = Box<dyn Fn() + Send>;

/// The process at the other end: the one that made the socket listen.
#[derive(Default)]
pub(crate) struct Daemon {
    /// Its id; 0 before the first connection.
    process: AtomicI32,
    /// Held for a call of the hook, which is short.
    hook: Mutex<Option<Hook>>,
}

impl Daemon {
    /// Sets what is done when another process answers, before it is asked anything.
    pub(crate) fn on_other(&self, hook: Hook) {
        let mut current = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(hook);
    }

    /// The process that answered last; `None` before the first connection, and for one of a pid
    /// namespace that this program does not see.
    pub(crate) fn process(&self) -> Option<u32> {
        let process = u32::try_from(self.process.load(Ordering::Acquire)).ok();
        process.filter(|process| *process > 0)
    }

    /// There is a new connection. One that broke while its daemon lives on is no news; neither is
    /// what cannot be told: a process of another pid namespace has no number here.
    pub(crate) fn met(&self, process: Option<i32>) {
        let Some(process @ 1..) = process else {
            return;
        };
        // AcqRel: connections come one after the other, on whatever thread.
        let before = self.process.swap(process, Ordering::AcqRel);
        if before == 0 || before == process {
            return;
        }
        tracing::info!(
            before,
            process,
            "another daemon answers at the runtime's socket"
        );
        let hook = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hook) = &*hook {
            hook();
        }
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon")
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn only_another_process_is_news() {
        let daemon = Daemon::default();
        let heard = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&heard);
        daemon.on_other(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        for (process, news) in [
            (Some(7), 0),
            (Some(7), 0),
            (None, 0),
            (Some(0), 0),
            (Some(8), 1),
            (Some(8), 1),
            (Some(7), 2),
        ] {
            daemon.met(process);
            assert_eq!(heard.load(Ordering::Relaxed), news, "after {process:?}");
        }
    }
}
