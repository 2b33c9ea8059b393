//! Wires the controllers to their informers.

use std::sync::Arc;

use swiftlet_client::api::Api;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::deployment::DeploymentController;
use crate::event_ttl;
use crate::garbage_collector::GarbageCollector;
use crate::informers::Informers;
use crate::namespace::NamespaceController;
use crate::node_lifecycle::NodeLifecycleController;
use crate::persistent_volume::PersistentVolumeController;
use crate::replica_set::ReplicaSetController;
use crate::root_ca::RootCaController;

/// What the controllers must be told.
#[derive(Clone, Default)]
pub struct Options {
    /// The clock.
    pub clock: Clock,
    /// PEM of the authority that signed the API server's certificate.
    pub root_ca_pem: String,
}

/// Runs all controllers until `shutdown`; each worker finishes the pass that it is in.
pub async fn run(api: Arc<dyn Api>, options: Options, shutdown: CancellationToken) {
    Box::pin(run_all(api, options, shutdown)).await;
}

async fn run_all(api: Arc<dyn Api>, options: Options, shutdown: CancellationToken) {
    let Options { clock, root_ca_pem } = options;
    let mut informers = Informers::new(&api);
    let replica_sets = ReplicaSetController::new(&api, &mut informers, clock.clone(), &shutdown);
    let deployments = DeploymentController::new(&api, &mut informers, clock.clone(), &shutdown);
    let garbage = GarbageCollector::new(&api, &mut informers);
    let namespaces = NamespaceController::new(&api, &mut informers);
    let nodes = NodeLifecycleController::new(&api, &mut informers, clock.clone(), &shutdown);
    let root_ca = RootCaController::new(&api, &mut informers, root_ca_pem);
    let volumes = PersistentVolumeController::new(&api, &mut informers, &shutdown);
    informers.spawn(&shutdown);
    tokio::join!(
        replica_sets.run(shutdown.clone()),
        deployments.run(shutdown.clone()),
        garbage.run(shutdown.clone()),
        namespaces.run(shutdown.clone()),
        nodes.run(shutdown.clone()),
        root_ca.run(shutdown.clone()),
        volumes.run(shutdown.clone()),
        event_ttl::run(api, clock, shutdown),
    );
}
