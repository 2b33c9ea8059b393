//! Builds the control plane top to bottom and runs it until a signal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use swiftlet_api::pki::Pki;
use swiftlet_api::{ApiOptions, ApiServer, Mount, NodeClient, Server, ServerOptions};
use swiftlet_client::api::{Api, UserInfo};
use swiftlet_link::server::LinkServer;
use swiftlet_store::{Store, StoreOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::kubeconfig::server_url;
use crate::options::{ControlOptions, DurabilityChoice};
use crate::timeline;

/// Version of the control plane, for people.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Path below which the node link is served.
const LINK_PATH: &str = "/swiftlet.v1.NodeLink/";

/// How long requests and controllers may take to end after a signal.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Runs the control plane.
pub(crate) async fn run(options: &ControlOptions) -> Result<()> {
    let store = open_store(options).await?;
    let pki = Pki::open(&options.data_dir)
        .with_context(|| format!("no authority in {}", options.data_dir.display()))?;
    let api = ApiServer::new(store.clone(), api_options(options, &pki)?);
    api.bootstrap()
        .await
        .context("cannot create the first namespaces")?;
    let shutdown = CancellationToken::new();
    let server = bind(options, &pki, &api, shutdown.clone()).await?;
    let mut tasks = JoinSet::new();
    let scheduler = internal(&api, "system:kube-scheduler");
    let scheduler = swiftlet_scheduler::run(scheduler, shutdown.clone());
    tasks.spawn(named("scheduler", scheduler));
    let controllers = internal(&api, "system:kube-controller-manager");
    let controller_options = swiftlet_controllers::Options {
        root_ca_pem: pki.ca_pem().to_owned(),
        ..swiftlet_controllers::Options::default()
    };
    let controllers = swiftlet_controllers::run(controllers, controller_options, shutdown.clone());
    tasks.spawn(named("controllers", controllers));
    if timeline::is_wanted() {
        let watch = timeline::run(internal(&api, "system:swiftlet-timeline"));
        let watch = shutdown.clone().run_until_cancelled_owned(watch);
        tasks.spawn(named("timeline", async {
            watch.await;
        }));
    }
    tracing::info!(address = %server.address(), version = VERSION, "serving");
    tasks.spawn(named("server", server.run(shutdown.clone())));
    let outcome = tokio::select! {
        signal = wait_for_signal() => signal,
        ended = tasks.join_next() => Err(unexpected_end(ended)),
    };
    match &outcome {
        Ok(()) => tracing::info!("shutting down"),
        Err(error) => tracing::error!(error = format!("{error:#}"), "shutting down"),
    }
    shutdown.cancel();
    api.stop_watches();
    let drained = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_LIMIT, drained).await.is_err() {
        tracing::warn!("some tasks did not end in time");
    }
    store.shutdown().await;
    outcome
}

async fn named(name: &'static str, part: impl Future<Output = ()>) -> &'static str {
    part.await;
    name
}

/// A control plane with a part missing looks alive and is not: it ends, so that whoever supervises
/// it starts a whole one.
fn unexpected_end(ended: Option<Result<&'static str, JoinError>>) -> anyhow::Error {
    match ended {
        Some(Ok(name)) => anyhow!("the {name} ended"),
        Some(Err(error)) => anyhow!(error).context("a part of the control plane broke down"),
        None => anyhow!("nothing runs"),
    }
}

async fn open_store(options: &ControlOptions) -> Result<Store> {
    let store = match options.durability {
        DurabilityChoice::Journal => StoreOptions::new(options.data_dir.join("store")),
        DurabilityChoice::Memory => {
            tracing::warn!("durability=memory: everything is lost when this process ends");
            StoreOptions::in_memory()
        }
    };
    let (store, report) = Store::open(store)
        .await
        .with_context(|| format!("cannot open the store in {}", options.data_dir.display()))?;
    tracing::info!(?report, "store open");
    Ok(store)
}

fn api_options(options: &ControlOptions, pki: &Pki) -> Result<ApiOptions> {
    Ok(ApiOptions {
        signing_key: Some(pki.service_account_key()?),
        node_client: Some(NodeClient::new(&pki.kubelet_client()?, pki.ca_pem())?),
        service_account_admission: true,
        service_range: options.service_cluster_ip_range,
        server_port: options.listen.port(),
        ..ApiOptions::default()
    })
}

/// Listens, with the link mounted, and writes the admin's kubeconfig.
async fn bind(
    options: &ControlOptions,
    pki: &Pki,
    api: &ApiServer,
    shutdown: CancellationToken,
) -> Result<Server> {
    let mut names = options.tls_san.clone();
    names.push(options.listen.ip().to_string());
    names.push(options.service_cluster_ip_range.first().to_string());
    let server = ServerOptions {
        address: options.listen,
        identity: pki.serving(&names)?,
        client_ca_pem: pki.ca_pem().to_owned(),
    };
    let server = Server::bind(api.clone(), server).await?;
    let link = LinkServer::start(internal(api, "system:swiftlet-link"), VERSION, shutdown);
    let server = server.mount(Mount::new(LINK_PATH, link.into_service()));
    let (url, admin) = (server_url(server.address()), pki.admin()?);
    let path = options.data_dir.join("admin.kubeconfig");
    pki.kubeconfig(&url, "kubernetes-admin", &admin)
        .write(&path)?;
    Ok(server)
}

/// The API for a part of this process, under a name of its own.
fn internal(api: &ApiServer, name: &str) -> Arc<dyn Api> {
    let groups = ["system:masters", "system:authenticated"]
        .map(str::to_owned)
        .to_vec();
    api.local(UserInfo {
        name: name.to_owned(),
        groups,
        ..UserInfo::default()
    })
}

async fn wait_for_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => (),
        _ = interrupt.recv() => (),
    }
    Ok(())
}
