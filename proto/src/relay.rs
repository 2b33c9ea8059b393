//! Two connections that are one: bytes pass from each to the other until one side has ended.
//! Nothing is parsed and nothing is kept beyond one buffer in each direction, so that a slow side
//! slows the other.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;

/// Bytes of one direction that wait for the other side.
const BUFFER_BYTES: usize = 32 << 10;

/// How long the other direction may go on without a byte after one has ended: what is still on its
/// way arrives, and who never closes holds nothing.
pub const LINGER: Duration = Duration::from_secs(10);

/// Quiet time after which the kernel asks a peer whether it is still there, and the time between
/// two such questions (Go's `net.ListenConfig` does so by default).
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Unanswered questions after which a peer counts as gone.
const KEEPALIVE_PROBES_MAX: u32 = 4;

/// How many bytes passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relayed {
    /// From the first to the second.
    pub forth: u64,
    /// From the second to the first.
    pub back: u64,
}

/// Passes bytes between two connections until both directions have ended, or one has ended and the
/// other has been quiet for [`LINGER`]. Both connections are closed then.
pub async fn relay<A, B>(first: A, second: B) -> Relayed
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_first, to_first) = tokio::io::split(first);
    let (from_second, to_second) = tokio::io::split(second);
    let (mut forth, mut back) = (
        Direction::new(from_first, to_second),
        Direction::new(from_second, to_first),
    );
    let (ended, forth_is_first) = tokio::select! {
        ended = forth.run(None) => (ended, true),
        ended = back.run(None) => (ended, false),
    };
    // Who cannot be read any more is gone and reads nothing either. Who takes nothing more may
    // still have something to say.
    if !matches!(ended, Err(Broken::Read)) {
        // An error is the other side's end, nothing that anybody could mend.
        let _ = if forth_is_first {
            back.run(Some(LINGER)).await
        } else {
            forth.run(Some(LINGER)).await
        };
    }
    Relayed {
        forth: forth.passed,
        back: back.passed,
    }
}

/// Why a direction ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// One side cannot be read.
    Read,
    /// The other cannot be written to.
    Write,
    /// Nothing came for too long.
    Quiet,
}

struct Direction<R, W> {
    from: ReadHalf<R>,
    to: WriteHalf<W>,
    buffer: Box<[u8]>,
    /// What has been read and not yet written: a direction that is interrupted loses nothing.
    waiting: std::ops::Range<usize>,
    passed: u64,
    is_flushed: bool,
}

impl<R: AsyncRead, W: AsyncWrite> Direction<R, W> {
    fn new(from: ReadHalf<R>, to: WriteHalf<W>) -> Self {
        Self {
            from,
            to,
            buffer: vec![0; BUFFER_BYTES].into(),
            waiting: 0..0,
            passed: 0,
            is_flushed: true,
        }
    }

    /// Passes all bytes, then says that no more will come. Cancel safe between two steps.
    async fn run(&mut self, quiet_max: Option<Duration>) -> Result<(), Broken> {
        loop {
            let step = self.step();
            let more = match quiet_max {
                None => step.await?,
                Some(limit) => match tokio::time::timeout(limit, step).await {
                    Ok(more) => more?,
                    Err(_) => return Err(Broken::Quiet),
                },
            };
            if !more {
                return self.to.shutdown().await.map_err(|_| Broken::Write);
            }
        }
    }

    /// One read, one write or one flush: each of them is cancel safe.
    async fn step(&mut self) -> Result<bool, Broken> {
        if !self.waiting.is_empty() {
            let written = self.to.write(&self.buffer[self.waiting.clone()]).await;
            let written = written.map_err(|_| Broken::Write)?;
            if written == 0 {
                return Err(Broken::Write);
            }
            self.waiting.start += written;
            self.passed += written as u64;
            self.is_flushed = false;
            return Ok(true);
        }
        if !self.is_flushed {
            self.to.flush().await.map_err(|_| Broken::Write)?;
            self.is_flushed = true;
        }
        let read = self.from.read(&mut self.buffer).await;
        let read = read.map_err(|_| Broken::Read)?;
        self.waiting = 0..read;
        Ok(read > 0)
    }
}

/// Makes a socket notice a peer that is gone without a word, and sends small pieces at once.
pub fn for_long_streams(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(KEEPALIVE_PROBES_MAX);
    // Best effort: without it a vanished peer is found when something is written to it.
    let _ = SockRef::from(stream).set_tcp_keepalive(&keepalive);
    let _ = stream.set_nodelay(true);
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{ReadBuf, duplex};

    use super::*;

    #[tokio::test]
    async fn all_bytes_pass_both_ways_through_narrow_pipes() {
        let ((mut here, near), (far, mut there)) = (duplex(10), duplex(7));
        let relayed = tokio::spawn(relay(near, far));
        let text = vec![7u8; 100_000];
        let (sent, answer) = (text.clone(), text.clone());
        let far_side = tokio::spawn(async move {
            let mut got = vec![0; sent.len()];
            there.read_exact(&mut got).await.unwrap();
            assert!(got == sent);
            there.write_all(&sent).await.unwrap();
            there.shutdown().await.unwrap();
        });
        here.write_all(&text).await.unwrap();
        let mut got = Vec::new();
        here.read_to_end(&mut got).await.unwrap();
        assert!(got == answer);
        far_side.await.unwrap();
        drop(here);
        let all = text.len() as u64;
        assert_eq!(
            relayed.await.unwrap(),
            Relayed {
                forth: all,
                back: all
            }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_never_closes_holds_nothing_for_ever() {
        let ((here, near), (far, there)) = (duplex(10), duplex(10));
        let relayed = tokio::spawn(relay(near, far));
        drop(here);
        // `there` is never read, written or closed.
        relayed.await.unwrap();
        drop(there);
    }

    /// A connection whose peer went away without a word.
    struct Gone;

    impl AsyncRead for Gone {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_is_gone_ends_both_at_once() {
        let (far, there) = duplex(10);
        let began = tokio::time::Instant::now();
        relay(tokio::io::join(Gone, tokio::io::sink()), far).await;
        assert!(began.elapsed() < LINGER);
        drop(there);
    }
}
