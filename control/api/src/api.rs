//! The API server itself: what all verbs share. It owns no state but the store's handle.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use swiftlet_client::api::{Api, ApiError, UserInfo, resources};
use swiftlet_store::{Durability, Entry, Expect, Op, Snapshot, Store, Template, WriteError};
use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::encode;
use crate::error;
use crate::local::Local;
use crate::node_proxy::NodeClient;
use crate::pages::Pages;
use crate::registry::Resource;
use crate::route::Target;
use crate::service_ip::{self, ServiceRange};
use crate::token::SigningKey;

/// Settings of the API server.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// How often a quiet watch is told how far it has come.
    pub bookmark_interval: Duration,
    /// Signs service account tokens; without one there are none.
    pub signing_key: Option<SigningKey>,
    /// Whether pods need an account that exists, and get its token mounted.
    pub service_account_admission: bool,
    /// Connects to nodes, for what they serve of their pods; without one nothing of it is served.
    pub node_client: Option<NodeClient>,
    /// Addresses of Services.
    pub service_range: ServiceRange,
    /// The port on which this server listens, which its own Service names.
    pub server_port: u16,
}

impl Default for ApiOptions {
    fn default() -> Self {
        // Kubernetes' watch cache sends one about every minute.
        Self {
            bookmark_interval: Duration::from_mins(1),
            signing_key: None,
            node_client: None,
            service_account_admission: false,
            service_range: ServiceRange::default(),
            server_port: 6443,
        }
    }
}

/// The API server. A clone is a handle to the same one.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    options: ApiOptions,
    pages: Pages,
    shutdown: CancellationToken,
    /// Held by writers of Services from the look at what is taken to the store's answer.
    allocation: Mutex<()>,
}

/// Why a write to the store did not happen.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The entry is not what was expected; here is what it is.
    Changed(Option<Entry>),
    /// Another reason, as the client is told.
    Error(ApiError),
}

impl ApiServer {
    /// Serves what is in a store.
    pub fn new(store: Store, options: ApiOptions) -> Self {
        let inner = Inner {
            store,
            options,
            pages: Pages::default(),
            shutdown: CancellationToken::new(),
            allocation: Mutex::new(()),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The API for clients in this process: the same chain under the given identity, without a
    /// socket.
    pub fn local(&self, user: UserInfo) -> Arc<dyn Api> {
        Arc::new(Local::new(self.clone(), user))
    }

    /// Ends all watches, so that connections can drain.
    pub fn stop_watches(&self) {
        self.inner.shutdown.cancel();
    }

    pub(crate) fn shutdown_token(&self) -> CancellationToken {
        self.inner.shutdown.clone()
    }

    pub(crate) fn options(&self) -> &ApiOptions {
        &self.inner.options
    }

    pub(crate) fn signing_key(&self) -> Option<&SigningKey> {
        self.inner.options.signing_key.as_ref()
    }

    /// Waits until nobody else gives out what a target's writes need. `None`: they need nothing.
    pub(crate) async fn allocation(&self, target: &Target) -> Option<MutexGuard<'_, ()>> {
        if service_ip::is_concerned(target) {
            Some(self.inner.allocation.lock().await)
        } else {
            None
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.inner.store.snapshot()
    }

    pub(crate) fn pages(&self) -> &Pages {
        &self.inner.pages
    }

    /// The stored entry of a target.
    pub(crate) fn find(&self, target: &Target) -> Result<Entry, ApiError> {
        let path = encode::path(target.resource, &target.namespace, &target.name);
        self.snapshot()
            .get(&path)
            .cloned()
            .ok_or_else(|| error::not_found(target.resource, &target.name))
    }

    /// Stores an object.
    pub(crate) async fn put(
        &self,
        target: &Target,
        value: Template,
        expect: Expect,
    ) -> Result<Bytes, Refused> {
        let key = encode::store_key(target.resource, &target.namespace, &target.name);
        let durability = durability(target.resource);
        let written = self
            .inner
            .store
            .write(Op::Put {
                key,
                value,
                expect,
                durability,
            })
            .await;
        written.map(|entry| entry.value).map_err(refused)
    }

    /// Removes an object; watchers see `last`.
    pub(crate) async fn remove(
        &self,
        target: &Target,
        last: Template,
        expect: Expect,
    ) -> Result<Bytes, Refused> {
        let key = encode::store_key(target.resource, &target.namespace, &target.name);
        let written = self
            .inner
            .store
            .write(Op::Delete {
                key,
                expect,
                last: Some(last),
            })
            .await;
        written.map(|entry| entry.value).map_err(refused)
    }
}

/// A lease is worth nothing after a restart: its holder writes it again.
fn durability(resource: &Resource) -> Durability {
    if resource.name == resources::LEASES {
        Durability::Memory
    } else {
        Durability::Journal
    }
}

fn refused(error: WriteError) -> Refused {
    Refused::Error(match error {
        WriteError::Conflict { current } => return Refused::Changed(current),
        WriteError::Full(_) => {
            error::too_many_requests("the server has received too many requests, try again later")
        }
        WriteError::TooLarge { limit_bytes, .. } => error::request_too_large(limit_bytes),
        WriteError::Closed => error::unavailable("the server is shutting down"),
        WriteError::Storage(source) => {
            tracing::error!(error = %source, "the store cannot write");
            error::internal(format_args!("the store cannot write: {source}"))
        }
        WriteError::SlotOutOfRange { .. } => error::internal(error),
    })
}
