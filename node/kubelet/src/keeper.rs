//! What the node has promised to its pods, and how it is: what sync loop, workers, eviction and
//! shutdown must agree upon.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use swiftlet_model::control_plane::{ObjectRef, RefKind};
use swiftlet_model::ids::PodUid;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::admission::{NodeView, Room};
use crate::eviction::Dead;
use crate::node_status::Pressure;
use crate::shared::Shared;
use crate::status::failure::PodFailure;

/// Pods to be ended that wait for the sync loop.
const FAILURES_MAX: usize = 64;

/// A pod that the node ends.
pub(crate) type Failure = (PodUid, PodFailure);

/// Kept once for the node.
pub(crate) struct Keeper {
    room: Mutex<Room>,
    /// Grows with each change of the room.
    changed: watch::Sender<u64>,
    pressure: watch::Sender<Pressure>,
    shutting_down: watch::Sender<bool>,
    view: Mutex<Option<NodeView>>,
    /// Grows when the node's object has changed in the API.
    view_changed: watch::Sender<u64>,
    /// What the runtime keeps of pods that have ended.
    pub(crate) dead: Dead,
    failures: mpsc::Sender<Failure>,
    failures_out: Mutex<Option<mpsc::Receiver<Failure>>>,
}

impl Keeper {
    pub(crate) fn new() -> Self {
        let (failures, failures_out) = mpsc::channel(FAILURES_MAX);
        Self {
            room: Mutex::default(),
            changed: watch::Sender::new(0),
            pressure: watch::Sender::new(Pressure::default()),
            shutting_down: watch::Sender::new(false),
            view: Mutex::default(),
            view_changed: watch::Sender::new(0),
            dead: Dead::default(),
            failures,
            failures_out: Mutex::new(Some(failures_out)),
        }
    }

    /// What is promised. Held for a look-up, never over a call.
    pub(crate) fn room(&self) -> MutexGuard<'_, Room> {
        // A reader's panic leaves the sums whole: they are changed in one place.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node has taken the pod, or has its newer object.
    pub(crate) fn take(&self, pod: Arc<Pod>) {
        self.room().take(pod);
        self.room_changed();
    }

    /// Tells all who wait that something was promised, or given back.
    pub(crate) fn room_changed(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// The pod's object has changed, but not what it is promised.
    pub(crate) fn renew(&self, pod: &Arc<Pod>) {
        self.room().renew(pod);
    }

    /// The pod needs nothing any more.
    pub(crate) fn release(&self, uid: &PodUid) {
        let was_in = self.room().release(uid);
        if was_in {
            self.room_changed();
        }
    }

    /// Tells of changes of the room.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn pressure(&self) -> Pressure {
        *self.pressure.borrow()
    }

    pub(crate) fn set_pressure(&self, pressure: Pressure) {
        self.pressure.send_if_modified(|known| {
            let changed = *known != pressure;
            *known = pressure;
            changed
        });
    }

    /// Tells of changes of the pressure.
    pub(crate) fn pressure_changes(&self) -> watch::Receiver<Pressure> {
        self.pressure.subscribe()
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        *self.shutting_down.borrow()
    }

    pub(crate) fn set_shutting_down(&self, whether: bool) {
        self.shutting_down.send_if_modified(|known| {
            let changed = *known != whether;
            *known = whether;
            changed
        });
    }

    /// Tells when the node begins to shut down, or goes on after all.
    pub(crate) fn shutdown_changes(&self) -> watch::Receiver<bool> {
        self.shutting_down.subscribe()
    }

    /// The node's labels and taints, if they are known.
    pub(crate) fn view(&self) -> Option<NodeView> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        view.clone()
    }

    /// The node's object has changed in the API.
    pub(crate) fn node_changed(&self) {
        self.view_changed.send_modify(|count| *count += 1);
    }

    fn set_view(&self, view: Option<NodeView>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Has the sync loop end a pod. Without a loop there is nothing to end.
    pub(crate) async fn fail(&self, uid: PodUid, failure: PodFailure) {
        self.failures.send((uid, failure)).await.ok();
    }

    /// The sync loop's end of [`Self::fail`]; a second loop would get none.
    pub(crate) fn failures(&self) -> mpsc::Receiver<Failure> {
        let mut out = self
            .failures_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        out.take().unwrap_or_else(|| mpsc::channel(1).1)
    }
}

/// All that goes on beside the pods, until `shutdown`.
pub(crate) async fn tasks(shared: Arc<Shared>, shutdown: CancellationToken) {
    tokio::join!(
        crate::eviction::run(Arc::clone(&shared), shutdown.clone()),
        crate::node_shutdown::run(Arc::clone(&shared), shutdown.clone()),
        crate::system_oom::run(Arc::clone(&shared), shutdown.clone()),
        crate::cpu_manager::save(Arc::clone(&shared), shutdown.clone()),
        crate::cgroups::keep_roots(Arc::clone(&shared), shutdown.clone()),
        follow_view(shared, shutdown),
    );
}

/// Keeps the node's labels and taints as the API has them until `shutdown`: people and controllers
/// write there.
async fn follow_view(shared: Arc<Shared>, shutdown: CancellationToken) {
    let own = ObjectRef {
        kind: RefKind::Node,
        namespace: String::new(),
        name: shared.node_name.clone(),
    };
    let mut changed = shared.keeper.view_changed.subscribe();
    let mut connected = shared.connected.subscribe();
    let following = async {
        loop {
            changed.borrow_and_update();
            connected.borrow_and_update();
            match shared.doors.control_plane.object(&own).await {
                Ok(json) => {
                    let node = json.and_then(|json| serde_json::from_slice::<Node>(&json).ok());
                    shared.keeper.set_view(node.as_ref().map(NodeView::of));
                }
                // What was known last is better than nothing.
                Err(error) => tracing::debug!(%error, "the node's own object was not read"),
            }
            tokio::select! {
                Ok(()) = changed.changed() => {}
                Ok(()) = connected.changed() => {}
            }
        }
    };
    shutdown.run_until_cancelled(following).await;
}
