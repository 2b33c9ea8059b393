//! The bridges that pods were attached to, as they were found or made.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bridge::{self, Bridge, BridgeSpec};
use crate::error::NetworkError;
use crate::netlink::link;
use crate::netlink::socket::NetlinkSocket;

/// What is known of them, so that not each pod asks the kernel again.
///
/// A mutex, because the users are threads that hold it for microseconds; only the first pod of a
/// bridge waits for the kernel under it, and so do the others, on purpose.
#[derive(Debug, Default)]
pub(super) struct Bridges(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The one that was used last at the end. A bridge that two networks share is there twice.
    known: Vec<(BridgeSpec, Bridge)>,
    /// All that pods were attached to since the start.
    names: BTreeSet<String>,
}

impl Bridges {
    /// The bridge, made at the first request.
    pub(super) fn ensure(
        &self,
        socket: &mut NetlinkSocket,
        spec: &BridgeSpec,
    ) -> Result<Bridge, NetworkError> {
        let mut state = self.lock();
        if let Some(at) = state.known.iter().position(|(known, _)| known == spec) {
            let known = state.known.remove(at);
            let bridge = known.1.clone();
            state.known.push(known);
            return Ok(bridge);
        }
        let bridge = bridge::ensure(socket, spec)?;
        state.remember(spec, &bridge);
        Ok(bridge)
    }

    /// Makes all bridges as they should be, whatever somebody did to them: without its address no
    /// pod has a way out. A bridge that is gone is left to the next pod.
    pub(super) fn verify(&self, socket: &mut NetlinkSocket) -> Result<(), NetworkError> {
        let mut errors = Vec::new();
        for spec in self.newest_specs() {
            let mut state = self.lock();
            // Other networks' view of it is taken anew with their next pod.
            state.known.retain(|(known, _)| known.name != spec.name);
            let found = link::find(socket, &spec.name);
            let made = found.and_then(|found| {
                let ensure = found.map(|_| bridge::ensure(socket, &spec));
                ensure.transpose()
            });
            match made {
                Ok(Some(bridge)) => state.remember(&spec, &bridge),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        NetworkError::collected(errors)
    }

    /// The bridges that pods were attached to since the start.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock().names.iter().cloned().collect()
    }

    /// Somebody took the bridge away: look again at the next request.
    pub(super) fn forget(&self, name: &str) {
        self.lock().known.retain(|(spec, _)| spec.name != name);
    }

    /// For each bridge what the network wanted that used it last.
    fn newest_specs(&self) -> Vec<BridgeSpec> {
        let state = self.lock();
        let mut newest: Vec<BridgeSpec> = Vec::new();
        for (spec, _) in state.known.iter().rev() {
            if !newest.iter().any(|newer| newer.name == spec.name) {
                newest.push(spec.clone());
            }
        }
        newest
    }

    /// What is remembered is changed in single steps, so a poisoned lock is taken as it is.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn remember(&mut self, spec: &BridgeSpec, bridge: &Bridge) {
        self.names.insert(spec.name.clone());
        self.known.push((spec.clone(), bridge.clone()));
    }
}
