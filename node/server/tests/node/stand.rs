//! A node of one test's own: server, pod, log folder.

use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use serde_json::json;
use swiftlet_model::Pod;
use swiftlet_model::ids::PodKey;
use swiftlet_model::pod_board::{Place, PodBoard};
use swiftlet_model::runtime::ContainerState;
use swiftlet_server::{Identity, NodeServer, ServerDoors, ServerOptions};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Authority;
use crate::runtime::{Played, echo_server};

/// A running server with one pod, `default/web`, with one container, `main`.
pub(crate) struct Stand {
    pub(crate) address: SocketAddr,
    pub(crate) authority: Authority,
    pub(crate) runtime: Arc<Played>,
    logs: TempDir,
    place: Place,
    shutdown: CancellationToken,
    server: JoinHandle<()>,
}

impl Stand {
    pub(crate) async fn new() -> Self {
        let (authority, logs) = (Authority::new(), tempfile::tempdir().unwrap());
        let board = Arc::new(PodBoard::default());
        let key = PodKey {
            namespace: "default".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let runtime = Arc::new(Played {
            pod: key.clone(),
            state: Mutex::new(Some(ContainerState::Running)),
            url: echo_server().await,
            asked: Mutex::default(),
        });
        let server = NodeServer::bind(ServerOptions {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            identity: Identity::self_made("worker-1", &[]).unwrap(),
            client_ca_pem: authority.ca_pem().into_bytes(),
            node_name: "worker-1".into(),
            log_root: logs.path().to_owned(),
        });
        let server = server.await.unwrap();
        let doors = ServerDoors {
            board: Arc::clone(&board),
            runtime: runtime.clone(),
            streaming: runtime.clone(),
            reviews: None,
        };
        let (address, shutdown) = (server.address(), CancellationToken::new());
        let server = tokio::spawn(server.run(doors, shutdown.clone()));
        let mut stand = Self {
            address,
            authority,
            runtime,
            place: Place::new(board, key),
            logs,
            shutdown,
            server,
        };
        stand.post(&json!({"running": {}}));
        fs::create_dir_all(stand.log().parent().unwrap()).unwrap();
        stand
    }

    /// Has the pod's status say this of its container.
    pub(crate) fn post(&mut self, state: &serde_json::Value) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "containerd://c", "state": state,
            }]},
        }))
        .unwrap();
        let status = pod.status.clone().unwrap();
        self.place.post(&Arc::new(pod), &status);
    }

    /// Where the container's log is.
    pub(crate) fn log(&self) -> PathBuf {
        self.logs.path().join("default_web_u/main/0.log")
    }

    /// The runtime's side of the log: as long as it is held, the container may write.
    pub(crate) fn writer(&self) -> LogWriter {
        let file = File::options().create(true).append(true).open(self.log());
        LogWriter(file.unwrap())
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.server.await.unwrap();
    }
}

/// What the runtime writes.
pub(crate) struct LogWriter(File);

impl LogWriter {
    pub(crate) fn line(&mut self, text: &str) {
        let line = format!("2024-01-02T03:04:05Z stdout F {text}\n");
        self.0.write_all(line.as_bytes()).unwrap();
    }
}
