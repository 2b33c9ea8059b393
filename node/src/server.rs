//! The node's own server: bound before the node says where it is reached, run when there is a
//! kubelet to tell of its pods.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use swiftlet_cri::Cri;
use swiftlet_model::pod_board::PodBoard;
use swiftlet_node_link::kubeconfig::Kubeconfig;
use swiftlet_server::{
    ControlPlaneAddress, Identity, NodeServer, Reviews, ServerDoors, ServerOptions,
};
use tokio_util::sync::CancellationToken;

use crate::configuration::Settings;
use crate::facts;
use crate::options::NodeOptions;

/// The server, listening.
pub(crate) struct Bound {
    server: NodeServer,
    reviews: Arc<Reviews>,
}

/// Begins to listen, unless the configuration has no server.
pub(crate) async fn bind(
    options: &NodeOptions,
    settings: &Settings,
    kubeconfig: &Kubeconfig,
) -> Result<Option<Bound>> {
    if settings.server_off {
        return Ok(None);
    }
    let reviews = Reviews::new(&ControlPlaneAddress {
        authority: &kubeconfig.authority,
        ca_pem: &kubeconfig.ca_pem,
        certificate_pem: &kubeconfig.certificate_pem,
        key_pem: &kubeconfig.key_pem,
    })
    .context("the node's clients cannot be checked")?;
    let client_ca_pem = match &options.client_ca_file {
        Some(path) => std::fs::read(path).with_context(|| format!("read {}", path.display()))?,
        None => kubeconfig.ca_pem.clone(),
    };
    let server = NodeServer::bind(ServerOptions {
        address: SocketAddr::new(options.address, options.port),
        identity: identity(options, kubeconfig)?,
        client_ca_pem,
        node_name: options.node_name(),
        log_root: options.pod_logs_dir.clone(),
    })
    .await?;
    tracing::info!(address = %server.address(), "the node's server listens");
    Ok(Some(Bound {
        server,
        reviews: Arc::new(reviews),
    }))
}

/// The certificate of the files, or of the kubeconfig, or one of the node's own making.
fn identity(options: &NodeOptions, kubeconfig: &Kubeconfig) -> Result<Identity> {
    match (&options.tls_cert_file, &options.tls_private_key_file) {
        (Some(certificate), Some(key)) => return Ok(Identity::read(certificate, key)?),
        (None, None) => {}
        _ => bail!("--tls-cert-file and --tls-private-key-file go together"),
    }
    let of_kubeconfig = Identity::from_pem(&kubeconfig.certificate_pem, &kubeconfig.key_pem)?;
    if of_kubeconfig.is_for_serving() {
        return Ok(of_kubeconfig);
    }
    tracing::warn!(
        "the kubeconfig's certificate is not for serving: the node makes one that the control \
         plane cannot verify"
    );
    let addresses = facts::node_ips(options);
    Ok(Identity::self_made(&options.node_name(), &addresses)?)
}

impl Bound {
    /// The port on which it listens.
    pub(crate) fn port(&self) -> u16 {
        self.server.address().port()
    }

    /// Serves until `shutdown`.
    pub(crate) fn serve(
        self,
        board: Arc<PodBoard>,
        runtime: Arc<Cri>,
        shutdown: CancellationToken,
    ) {
        let doors = ServerDoors {
            board,
            runtime: runtime.clone(),
            streaming: runtime,
            reviews: Some(self.reviews),
        };
        tokio::spawn(self.server.run(doors, shutdown));
    }
}
