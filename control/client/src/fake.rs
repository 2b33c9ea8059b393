//! An API server in memory, for the tests of the door's users.
//!
//! It keeps resourceVersions, compare-and-swap, watches, subresources, finalizers and graceful
//! deletion of pods, and nothing else: no validation, no defaults but those that controllers rely
//! on.

mod object;
mod patch;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::StreamExt;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::api::{
    Api, ApiError, DeleteParameters, ObjectName, PatchKind, RawList, RawWatch, Selection,
};
pub use state::error;
use state::{Filter, State};

/// A request that a fake has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `get`, `list`, `create`, `update`, `patch` or `delete`.
    pub verb: &'static str,
    /// The object.
    pub name: ObjectName,
}

/// Decides whether a call fails, and how.
pub type Fault = Box<dyn FnMut(&Call) -> Option<ApiError> + Send>;

/// An API server in memory.
pub struct FakeApi {
    // Tests look at it from outside, between the steps of the code under test.
    state: Mutex<State>,
    fault: Mutex<Option<Fault>>,
    calls: Mutex<Vec<Call>>,
    revision: watch::Sender<u64>,
}

impl FakeApi {
    /// An empty server.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::default()),
            fault: Mutex::new(None),
            calls: Mutex::new(Vec::new()),
            revision: watch::Sender::new(0),
        })
    }

    /// Lets calls fail.
    pub fn set_fault(&self, fault: impl FnMut(&Call) -> Option<ApiError> + Send + 'static) {
        *lock(&self.fault) = Some(Box::new(fault));
    }

    /// All writing calls so far.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }

    /// Forgets all changes so far: every watch that is behind gets "too old".
    pub fn compact(&self) {
        lock(&self.state).compact();
        self.revision.send_modify(|_| ());
    }

    fn write<'a>(
        &'a self,
        verb: &'static str,
        name: &'a ObjectName,
        operation: impl FnOnce(&mut State) -> Result<Bytes, ApiError> + Send + 'a,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move {
            // A real call takes a turn of the scheduler, too.
            tokio::task::yield_now().await;
            let call = Call {
                verb,
                name: name.clone(),
            };
            lock(&self.calls).push(call.clone());
            if let Some(error) = lock(&self.fault).as_mut().and_then(|fault| fault(&call)) {
                return Err(error);
            }
            let mut state = lock(&self.state);
            let result = operation(&mut state);
            self.revision.send_replace(state.revision());
            result
        })
    }
}

impl Api for FakeApi {
    fn get<'a>(&'a self, name: &'a ObjectName) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        Box::pin(async move { lock(&self.state).get(name) })
    }

    fn list<'a>(&'a self, selection: &'a Selection) -> BoxFuture<'a, Result<RawList, ApiError>> {
        Box::pin(async move {
            let filter = Filter::new(selection)?;
            let state = lock(&self.state);
            Ok(RawList {
                items: state.list(&filter),
                resource_version: state.revision(),
            })
        })
    }

    fn watch(&self, selection: &Selection, resource_version: u64) -> Result<RawWatch, ApiError> {
        let filter = Filter::new(selection)?;
        let mut revisions = self.revision.subscribe();
        // The stream must not keep the server alive by itself, nor borrow it: it holds the log's
        // handle.
        let log = lock(&self.state).log();
        let (sender, receiver) = tokio::sync::mpsc::channel(64);
        tokio::spawn(async move {
            let mut position = resource_version;
            loop {
                let events = lock(&log).since(&filter, &mut position);
                let failed = events.is_err();
                let events = match events {
                    Ok(events) => events.into_iter().map(Ok).collect(),
                    Err(error) => vec![Err(error)],
                };
                for event in events {
                    if sender.send(event).await.is_err() {
                        return;
                    }
                }
                if failed || revisions.changed().await.is_err() {
                    return;
                }
            }
        });
        Ok(
            futures::stream::unfold(receiver, |mut receiver| async move {
                receiver.recv().await.map(|event| (event, receiver))
            })
            .boxed(),
        )
    }

    fn create<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        self.write("create", name, move |state| state.create(name, &body))
    }

    fn update<'a>(
        &'a self,
        name: &'a ObjectName,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        self.write("update", name, move |state| state.update(name, &body))
    }

    fn patch<'a>(
        &'a self,
        name: &'a ObjectName,
        kind: PatchKind,
        body: Bytes,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        self.write("patch", name, move |state| state.patch(name, kind, &body))
    }

    fn delete<'a>(
        &'a self,
        name: &'a ObjectName,
        parameters: DeleteParameters,
    ) -> BoxFuture<'a, Result<Bytes, ApiError>> {
        self.write("delete", name, move |state| state.delete(name, &parameters))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
