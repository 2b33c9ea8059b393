//! The machine's word that it is being switched off, from logind over D-Bus, and the lock that has
//! it wait. The protocol: `org.freedesktop.login1(5)`, `systemd-inhibit(1)`.

use std::time::Duration;

use futures::StreamExt as _;
use swiftlet_model::BoxFuture;
use swiftlet_model::shutdown::{ShutdownError, ShutdownSignals};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use zbus::Connection;
use zbus::zvariant::OwnedFd;

/// What the lock is against.
const WHAT: &str = "shutdown";
/// Who takes it, for `systemd-inhibit --list`.
const WHO: &str = "swiftlet-node";
/// Why, for the same.
const WHY: &str = "Pods need time to end";
/// The machine waits, but only so long.
const MODE: &str = "delay";
/// Words that wait to be heard: it begins, it is called off, it begins again.
const WORDS_MAX: usize = 4;

#[zbus::proxy(
    interface = "org.freedesktop.login1.Manager",
    default_service = "org.freedesktop.login1",
    default_path = "/org/freedesktop/login1",
    gen_blocking = false
)]
trait Manager {
    /// Takes a lock that is held as long as the descriptor is open.
    fn inhibit(&self, what: &str, who: &str, why: &str, mode: &str) -> zbus::Result<OwnedFd>;

    /// How long logind waits for locks, in microseconds.
    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max_usec(&self) -> zbus::Result<u64>;

    /// The machine begins to shut down, or goes on after all.
    #[zbus(signal)]
    fn prepare_for_shutdown(&self, begins: bool) -> zbus::Result<()>;
}

/// logind. Nothing is connected before a delay is wanted.
#[derive(Default)]
pub(crate) struct Logind {
    state: Mutex<State>,
    ended: CancellationToken,
}

#[derive(Default)]
struct State {
    lock: Option<OwnedFd>,
    words: Option<mpsc::Receiver<bool>>,
    manager: Option<ManagerProxy<'static>>,
}

impl Logind {
    async fn begin(&self, connection: Connection, limit: Duration) -> zbus::Result<()> {
        let manager = ManagerProxy::new(&connection).await?;
        let longest = Duration::from_micros(manager.inhibit_delay_max_usec().await?);
        if longest < limit {
            tracing::warn!(
                wanted_s = limit.as_secs(),
                longest_s = longest.as_secs(),
                "logind waits for less than the pods' grace periods at shutdown; set \
                 InhibitDelayMaxSec in /etc/systemd/logind.conf.d and reload systemd-logind"
            );
        }
        // Listened to before the lock is taken: from then on no word is missed.
        let mut signals = manager.receive_prepare_for_shutdown().await?;
        let lock = manager.inhibit(WHAT, WHO, WHY, MODE).await?;
        let (sender, words) = mpsc::channel(WORDS_MAX);
        let listening = async move {
            while let Some(signal) = signals.next().await {
                let Ok(signal) = signal.args() else { continue };
                if sender.send(*signal.begins()).await.is_err() {
                    break;
                }
            }
        };
        tokio::spawn(self.ended.clone().run_until_cancelled_owned(listening));
        *self.state.lock().await = State {
            lock: Some(lock),
            words: Some(words),
            manager: Some(manager),
        };
        Ok(())
    }

    async fn next_word(&self) -> Option<bool> {
        // Taken out, so that the lock can be released while this waits.
        let mut words = self.state.lock().await.words.take()?;
        let word = words.recv().await;
        let mut state = self.state.lock().await;
        state.words = Some(words);
        if word == Some(false)
            && state.lock.is_none()
            && let Some(manager) = &state.manager
        {
            // The shutdown was called off: the next one must wait again.
            match manager.inhibit(WHAT, WHO, WHY, MODE).await {
                Ok(lock) => state.lock = Some(lock),
                Err(error) => tracing::warn!(%error, "the next shutdown will not wait for pods"),
            }
        }
        word
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

impl ShutdownSignals for Logind {
    fn delay(&self, limit: Duration) -> BoxFuture<'_, Result<(), ShutdownError>> {
        Box::pin(async move {
            let begun = async { self.begin(Connection::system().await?, limit).await };
            begun
                .await
                .map_err(|error| ShutdownError(error.to_string()))
        })
    }

    fn next(&self) -> BoxFuture<'_, Option<bool>> {
        Box::pin(self.next_word())
    }

    fn release(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.state.lock().await.lock = None;
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream as StdStream;

    use tokio::net::UnixStream;
    use zbus::connection::Builder;
    use zbus::object_server::SignalEmitter;

    use super::*;

    /// A logind that gives one end of a socket pair as its lock.
    struct Fake {
        locks: Vec<StdStream>,
        longest_us: u64,
        taken: mpsc::Sender<StdStream>,
    }

    #[zbus::interface(name = "org.freedesktop.login1.Manager")]
    impl Fake {
        async fn inhibit(&mut self, what: &str, who: &str, why: &str, mode: &str) -> OwnedFd {
            assert_eq!((what, mode), ("shutdown", "delay"));
            assert!(!who.is_empty() && !why.is_empty());
            let (ours, theirs) = StdStream::pair().unwrap();
            self.locks.push(ours.try_clone().unwrap());
            self.taken.send(ours).await.unwrap();
            std::os::fd::OwnedFd::from(theirs).into()
        }

        #[zbus(property, name = "InhibitDelayMaxUSec")]
        fn inhibit_delay_max_usec(&self) -> u64 {
            self.longest_us
        }

        #[zbus(signal)]
        async fn prepare_for_shutdown(
            emitter: &SignalEmitter<'_>,
            begins: bool,
        ) -> zbus::Result<()>;
    }

    /// Both ends of a bus without a daemon.
    async fn pair(fake: Fake) -> (Connection, Connection) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let guid = zbus::Guid::generate();
        let server = Builder::unix_stream(theirs).server(guid).unwrap().p2p();
        let server = server.serve_at("/org/freedesktop/login1", fake).unwrap();
        let client = Builder::unix_stream(ours).p2p();
        tokio::try_join!(server.build(), client.build()).unwrap()
    }

    #[tokio::test]
    async fn the_machine_waits_until_the_lock_is_given_back() {
        let (taken, mut locks) = mpsc::channel(4);
        let fake = Fake {
            locks: Vec::new(),
            longest_us: 5_000_000,
            taken,
        };
        let (server, client) = pair(fake).await;
        let logind = Logind::default();
        logind.begin(client, Duration::from_secs(9)).await.unwrap();
        let mut lock = locks.recv().await.unwrap();
        let emitter = SignalEmitter::new(&server, "/org/freedesktop/login1").unwrap();
        Fake::prepare_for_shutdown(&emitter, true).await.unwrap();
        assert_eq!(logind.next().await, Some(true));
        logind.release().await;
        let ended = tokio::task::spawn_blocking(move || lock.read(&mut [0]).unwrap());
        assert_eq!(ended.await.unwrap(), 0, "the lock is open no more");
        Fake::prepare_for_shutdown(&emitter, false).await.unwrap();
        assert_eq!(logind.next().await, Some(false));
        assert!(locks.recv().await.is_some(), "it is taken again");
    }
}
