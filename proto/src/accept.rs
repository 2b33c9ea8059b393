//! Accepting connections: as many as there are places for, until the end, and then what is open.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after the kernel refused a connection, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that are open when nobody is accepted any more.
#[derive(Debug)]
pub struct Open(TaskTracker);

/// Serves each connection by a task, `connections_max` at one time, until `shutdown`; then nothing
/// listens any more. The end is noticed, too, when all places are taken.
pub async fn accept<F>(
    listener: TcpListener,
    connections_max: usize,
    shutdown: &CancellationToken,
    serve: impl Fn(TcpStream) -> F,
) -> Open
where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks = TaskTracker::new();
    let places = Arc::new(Semaphore::new(connections_max));
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            next = next => next,
        };
        let Some(stream) = usable(accepted).await else {
            continue;
        };
        let served = serve(stream);
        tasks.spawn(async move {
            served.await;
            drop(place);
        });
    }
    tasks.close();
    Open(tasks)
}

impl Open {
    /// Lets them finish, for at most this time.
    pub async fn drain(self, limit: Duration) {
        let finished = tokio::time::timeout(limit, self.0.wait()).await;
        if finished.is_err() {
            tracing::warn!(open = self.0.len(), "connections were cut at shutdown");
        }
    }
}

async fn usable(accepted: io::Result<(TcpStream, SocketAddr)>) -> Option<TcpStream> {
    match accepted {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn the_end_is_noticed_when_all_places_are_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let ends = shutdown.clone();
        let server = tokio::spawn(async move {
            let until_end = |mut stream: TcpStream| async move {
                let _ = stream.read(&mut [0]).await;
            };
            accept(listener, 1, &ends, until_end).await
        });
        let only = TcpStream::connect(address).await.unwrap();
        // It waits in the kernel's queue, for the one place.
        let _other = TcpStream::connect(address).await.unwrap();
        shutdown.cancel();
        let open = server.await.unwrap();
        assert!(
            TcpStream::connect(address).await.is_err(),
            "nothing listens"
        );
        drop(only);
        open.drain(Duration::from_mins(1)).await;
    }
}
