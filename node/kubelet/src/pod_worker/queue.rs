//! What the sync loop tells a worker. Orders: the newest wins. Hints: in their order, and if there
//! are too many of them the worker is told to ask the runtime instead.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::lifecycle::PodLifecycleEvent;
use tokio::sync::{mpsc, watch};

use crate::admission::Rejection;
pub(crate) use crate::status::failure::PodFailure;

/// Hints that wait for one worker.
const HINTS_MAX: usize = 64;

/// What a worker shall do.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// The newest object of the pod.
    pub(crate) pod: Arc<Pod>,
    /// What is wanted.
    pub(crate) wish: Wish,
    /// Grows when the runtime must be asked, since hints were lost.
    pub(crate) requery: u64,
    /// Grows when waiting for a retry is pointless: the connection is back, or a reference changed.
    pub(crate) hurry: u64,
    /// Grows when someone else wrote the pod's status.
    pub(crate) reconcile: u64,
    /// Grows when the API has a new object for the pod, which lacks what was stored before.
    pub(crate) anew: u64,
    /// Grows when ConfigMaps or Secrets changed that the pod names.
    pub(crate) referenced: u64,
    /// A pod that ends has no longer than this: the node must be rid of it.
    pub(crate) end_by: Option<Instant>,
}

/// What is wanted of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wish {
    /// It shall run.
    Run,
    /// The node did not take it.
    Reject(Rejection),
    /// The node ends it, and it has failed.
    Fail(PodFailure),
    /// It shall end.
    Delete,
    /// Its object is gone.
    Vanish,
}

/// The sync loop's end.
#[derive(Debug)]
pub(crate) struct Mailbox {
    orders: watch::Sender<Order>,
    hints: mpsc::Sender<PodLifecycleEvent>,
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Inbox {
    orders: watch::Receiver<Order>,
    hints: mpsc::Receiver<PodLifecycleEvent>,
}

/// What a worker finds in its inbox.
#[derive(Debug)]
pub(crate) enum Mail {
    Hint(PodLifecycleEvent),
    Order(Box<Order>),
}

/// A mailbox with its first order in it.
pub(crate) fn mailbox(pod: Arc<Pod>, wish: Wish) -> (Mailbox, Inbox) {
    let order = Order {
        pod,
        wish,
        requery: 0,
        hurry: 0,
        reconcile: 0,
        anew: 0,
        referenced: 0,
        end_by: None,
    };
    let (orders, orders_out) = watch::channel(order);
    let (hints, hints_out) = mpsc::channel(HINTS_MAX);
    (
        Mailbox { orders, hints },
        Inbox {
            orders: orders_out,
            hints: hints_out,
        },
    )
}

impl Mailbox {
    /// Changes the order; one that the worker has not seen yet is replaced.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut Order)) {
        self.orders.send_modify(change);
    }

    /// What is wanted of the pod, as it was told last.
    pub(crate) fn wish(&self) -> Wish {
        self.orders.borrow().wish.clone()
    }

    /// Passes a hint on.
    pub(crate) fn hint(&self, event: PodLifecycleEvent) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.hints.try_send(event) {
            self.tell(|order| order.requery += 1);
        }
    }
}

impl Inbox {
    /// The present order.
    pub(crate) fn order(&mut self) -> Order {
        self.orders.borrow_and_update().clone()
    }

    /// Waits for the next mail, deaths before desires. Cancel safe. `None`: the sync loop is gone.
    pub(crate) async fn next(&mut self) -> Option<Mail> {
        tokio::select! {
            biased;
            Some(event) = self.hints.recv() => Some(Mail::Hint(event)),
            changed = self.orders.changed() => {
                changed.ok().map(|()| Mail::Order(Box::new(self.order())))
            }
        }
    }
}
