//! One HTTP/2 connection over the runtime's socket.
//!
//! The channel connects at the first call and again after a loss; a call that finds nobody fails at
//! once with [`RuntimeError::Unavailable`] instead of waiting for its limit.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use k8s_cri::v1::image_service_client::ImageServiceClient;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use swiftlet_model::runtime::RuntimeError;
use tokio::net::UnixStream;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, TimeoutExpired};

use crate::daemon::Daemon;

/// Limit for a call that only reads: lists, statuses, version. containerd lists 400 pods within a
/// millisecond; half a minute means that it hangs.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(30);

/// Limit for a call that changes one object. Kubernetes' `runtimeRequestTimeout`.
pub(crate) const CHANGE_LIMIT: Duration = Duration::from_mins(2);

/// Limit for a pull. The runtime itself gives up on a pull that makes no progress; kubelet has no
/// limit here at all, since a large image over a thin line is no failure.
pub(crate) const PULL_LIMIT: Duration = Duration::from_hours(6);

/// How much later than the runtime we give up, so that its own word on the timeout arrives first.
const LIMIT_SLACK: Duration = Duration::from_millis(250);

/// Limit for connecting to the socket. A full backlog is the only reason to wait at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// Largest answer in bytes. Lists of some thousand containers with large annotations pass the
/// 16 MiB that Kubernetes allowed for long (KEP-5825).
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// HTTP/2 ping while calls are open. grpc-go's servers end a connection that pings more often than
/// once in five minutes (`keepalive.EnforcementPolicy`), so it cannot be shorter; a runtime that is
/// gone closes the socket anyway, and one that hangs is caught by the limits of the calls.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(310);

/// How long the answer to such a ping may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// containerd's words while it recovers after its own start.
const NOT_INITIALIZED: &str = "server is not initialized yet";

/// containerd's words when a runtime shim ended while it was asked: the next try finds it gone.
const SHIM_GONE: &str = "ttrpc: closed";

/// What calls name as the host: HTTP/2 wants one, and no runtime looks at it.
const AUTHORITY: &str = "http://localhost";

/// A connection to the runtime. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: Arc<Path>,
    channel: Channel,
    daemon: Arc<Daemon>,
}

/// One CRI method with the time that it may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The method's name in CRI.
    pub(crate) name: &'static str,
    /// How long it may take.
    pub(crate) limit: Duration,
}

impl Call {
    /// A call that only reads.
    pub(crate) const fn read(name: &'static str) -> Self {
        Self {
            name,
            limit: READ_LIMIT,
        }
    }

    /// A call that changes one object.
    pub(crate) const fn change(name: &'static str) -> Self {
        Self {
            name,
            limit: CHANGE_LIMIT,
        }
    }

    /// A call with a limit of its own.
    pub(crate) const fn within(name: &'static str, limit: Duration) -> Self {
        Self { name, limit }
    }
}

impl Client {
    /// A client of the runtime at `socket`; connects when first used.
    pub(crate) fn new(socket: PathBuf) -> Self {
        let socket: Arc<Path> = socket.into();
        let daemon = Arc::<Daemon>::default();
        let connector = {
            let (socket, daemon) = (Arc::clone(&socket), Arc::clone(&daemon));
            tower::service_fn(move |_: Uri| connect(Arc::clone(&socket), Arc::clone(&daemon)))
        };
        let endpoint = Endpoint::from_static(AUTHORITY)
            .connect_timeout(CONNECT_LIMIT)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(false);
        Self {
            channel: endpoint.connect_with_connector_lazy(connector),
            socket,
            daemon,
        }
    }

    /// Who answers at the socket.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// The runtime's socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(crate) fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Sends one request and waits for its answer, at most `call.limit`. The runtime is told the
    /// limit, so that it stops working on what nobody waits for.
    pub(crate) async fn send<Q, A, F>(
        &self,
        call: Call,
        message: Q,
        method: impl FnOnce(Request<Q>) -> F,
    ) -> Result<A, RuntimeError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let mut request = Request::new(message);
        request.set_timeout(call.limit);
        // Boxed, because the largest of them would make every caller's future 20 KiB large.
        let answer = Box::pin(method(request));
        match tokio::time::timeout(call.limit + LIMIT_SLACK, answer).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.error(call, &status)),
            Err(_elapsed) => Err(timeout(call)),
        }
    }

    /// What a gRPC status means for the caller.
    pub(crate) fn error(&self, call: Call, status: &Status) -> RuntimeError {
        let unavailable = || RuntimeError::Unavailable {
            socket: self.socket.to_path_buf(),
            cause: causes(status),
        };
        let name = call.name;
        let message = status.message().to_owned();
        match status.code() {
            // The channel watches the request's own limit too, and may be first.
            _ if is_expired(status) => timeout(call),
            // The transport made this status itself: the connection broke or was never made.
            _ if status.source().is_some() => unavailable(),
            Code::Unavailable => unavailable(),
            // containerd serves its socket before its CRI part has looked at what runs.
            Code::Unknown if message.contains(NOT_INITIALIZED) => unavailable(),
            Code::Unknown if message.contains(SHIM_GONE) => unavailable(),
            Code::DeadlineExceeded | Code::Cancelled => timeout(call),
            Code::Unimplemented => RuntimeError::Unsupported { call: name },
            Code::NotFound => RuntimeError::NotFound {
                call: name,
                message,
            },
            Code::AlreadyExists => RuntimeError::AlreadyExists {
                call: name,
                message,
            },
            // containerd has no code of its own for these two (`internal/registrar`).
            _ if is_reserved(&message) => RuntimeError::AlreadyExists {
                call: name,
                message,
            },
            _ => RuntimeError::Refused {
                call: name,
                message,
            },
        }
    }
}

/// Connects to the socket, and looks who is there before anything is asked.
async fn connect(socket: Arc<Path>, daemon: Arc<Daemon>) -> io::Result<TokioIo<UnixStream>> {
    let stream = UnixStream::connect(&socket).await?;
    daemon.met(stream.peer_cred()?.pid());
    Ok(TokioIo::new(stream))
}

/// Makes "there is no such thing" the success of what removes it.
pub(crate) fn missing_is_done(result: Result<(), RuntimeError>) -> Result<(), RuntimeError> {
    match result {
        Err(error) if error.is_not_found() => Ok(()),
        other => other,
    }
}

/// Whether the runtime refused because an earlier call holds the name.
fn is_reserved(message: &str) -> bool {
    message.contains("failed to reserve sandbox name")
        || message.contains("failed to reserve container name")
}

fn is_expired(status: &Status) -> bool {
    let mut chain = std::iter::successors(status.source(), |&error| error.source());
    chain.any(<dyn std::error::Error>::is::<TimeoutExpired>)
}

fn timeout(call: Call) -> RuntimeError {
    let limit_ms = u64::try_from(call.limit.as_millis()).unwrap_or(u64::MAX);
    RuntimeError::Timeout {
        call: call.name,
        limit_ms,
    }
}

/// The status's words and those of everything below it: "transport error" alone helps nobody.
fn causes(status: &Status) -> String {
    let mut words = status.message().to_owned();
    for cause in std::iter::successors(status.source(), |&error| error.source()) {
        let text = cause.to_string();
        if !text.is_empty() && !words.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Call = Call::read("ListContainers");

    fn error(status: &Status) -> RuntimeError {
        Client::new("/nowhere.sock".into()).error(CALL, status)
    }

    #[tokio::test]
    async fn each_grpc_code_has_one_meaning() {
        assert!(error(&Status::not_found("x")).is_not_found());
        assert!(matches!(
            error(&Status::already_exists("x")),
            RuntimeError::AlreadyExists { .. }
        ));
        assert!(matches!(
            error(&Status::unavailable("x")),
            RuntimeError::Unavailable { .. }
        ));
        assert!(matches!(
            error(&Status::deadline_exceeded("x")),
            RuntimeError::Timeout { .. }
        ));
        assert!(matches!(
            error(&Status::unimplemented("unknown method GetContainerEvents")),
            RuntimeError::Unsupported { .. }
        ));
        assert!(matches!(
            error(&Status::unknown("x")),
            RuntimeError::Refused { .. }
        ));
    }

    #[tokio::test]
    async fn a_reserved_name_counts_as_existing() {
        let status = Status::unknown(
            "failed to reserve sandbox name \"a_b_c_0\": name \"a_b_c_0\" is reserved for \"1f\"",
        );
        assert!(matches!(error(&status), RuntimeError::AlreadyExists { .. }));
    }

    #[tokio::test]
    async fn a_new_daemon_is_noticed_before_it_is_asked_anything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let client = Client::new(path);
        // Before, another process was there: number 1 listens on no socket of a test.
        client.daemon().met(Some(1));
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        client
            .daemon()
            .on_other(Box::new(move || tell.send(()).unwrap()));
        let call = client.send(CALL, (), async |_| {
            let request = k8s_cri::v1::VersionRequest::default();
            client.runtime().version(request).await
        });
        let (answer, heard) = tokio::join!(call, async {
            let (stream, _) = listener.accept().await.unwrap();
            // It hangs up without a word, and was noticed all the same.
            drop((stream, listener));
            told.recv().await
        });
        assert!(answer.is_err_and(|error| error.is_retryable()));
        assert_eq!(heard, Some(()));
    }

    #[tokio::test]
    async fn a_socket_that_is_not_there_is_reported_at_once_with_its_path_and_cause() {
        let client = Client::new("/nowhere/containerd.sock".into());
        let before = std::time::Instant::now();
        let request = k8s_cri::v1::VersionRequest {
            version: String::new(),
        };
        let call = Call::read("Version");
        let error = client
            .send(call, request, async |request| {
                client.runtime().version(request).await
            })
            .await
            .expect_err("nobody listens there");
        assert!(
            before.elapsed() < Duration::from_secs(1),
            "took {:?}",
            before.elapsed()
        );
        let text = error.to_string();
        assert!(error.is_retryable());
        assert!(text.contains("/nowhere/containerd.sock"), "{text}");
        assert!(text.contains("No such file"), "{text}");
    }
}
