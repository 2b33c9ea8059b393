//! Volumes that pods on their way to a node will have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use swiftlet_client::reflector::Snapshot;
use swiftlet_client::{Client, ClientError, Object};
use swiftlet_proto::claim::{Place, held, meets, reaches, select, wanted_size};

/// Says that no user chose the volume.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Writes of one volume before the pod is put back: its state is written once or twice when it is
/// new.
const TRIES_MAX: usize = 3;

/// A volume for a claim.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) claim: Arc<PersistentVolumeClaim>,
    pub(crate) volume: Arc<PersistentVolume>,
}

/// What was chosen and does not stand in the API yet, by the volume's name.
///
/// A lock, because bindings under way read their part while the loop decides about the next pod; it
/// is held for look-ups alone.
#[derive(Clone, Default)]
pub(crate) struct Reservations {
    chosen: Arc<Mutex<HashMap<String, Reserved>>>,
}

struct Reserved {
    /// The pods that need it: claims may be shared.
    pods: Vec<String>,
    choice: Choice,
    /// The version of the volume in which it stands. Once that is known here, the volume speaks for
    /// itself.
    written: Option<u64>,
}

impl Reservations {
    /// Volumes that this node can use for these claims, the smallest claim first; a claim for which
    /// there is none is left out.
    pub(crate) fn choose(
        &self,
        claims: &[Arc<PersistentVolumeClaim>],
        volumes: &Snapshot<PersistentVolume>,
        node: Place<'_>,
    ) -> Vec<Choice> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.retain(|_, one| !is_shown(one, volumes));
        let mut claims = claims.to_vec();
        claims.sort_by_key(|claim| (wanted_size(claim), claim.key()));
        let mut found: Vec<Choice> = Vec::new();
        for claim in claims {
            let reserved = chosen
                .values()
                .find(|one| one.choice.claim.uid() == claim.uid());
            let own = reserved.map(|one| &one.choice.volume);
            let own = own.or_else(|| held(volumes.iter(), &claim));
            let volume = if let Some(own) = own {
                Some(own).filter(|own| reaches(own, node))
            } else {
                let free = volumes.iter().filter(|volume| {
                    let taken = found.iter().any(|one| one.volume.name() == volume.name());
                    !taken && !chosen.contains_key(volume.name()) && meets(volume, &claim)
                });
                select(free, &claim, Some(node))
            };
            found.extend(volume.map(|volume| Choice {
                volume: Arc::clone(volume),
                claim: Arc::clone(&claim),
            }));
        }
        found
    }

    /// Keeps the volumes for the pod.
    pub(crate) fn keep(&self, pod: &str, choices: Vec<Choice>) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        for choice in choices {
            let name = choice.volume.name().to_owned();
            let reserved = chosen.entry(name).or_insert(Reserved {
                pods: Vec::new(),
                choice,
                written: None,
            });
            reserved.pods.push(pod.to_owned());
        }
    }

    /// The API has it, in this version of the volume.
    pub(crate) fn wrote(&self, volume: &PersistentVolume) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reserved) = chosen.get_mut(volume.name()) {
            reserved.written = version(volume);
        }
    }

    /// What is kept for the pod.
    pub(crate) fn of(&self, pod: &str) -> Vec<Choice> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = chosen
            .values()
            .filter(|one| one.pods.iter().any(|uid| uid == pod));
        mine.map(|one| one.choice.clone()).collect()
    }

    /// Keeps nothing for the pod any more.
    pub(crate) fn drop_of(&self, pod: &str) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.retain(|_, one| {
            one.pods.retain(|uid| uid != pod);
            !one.pods.is_empty()
        });
    }
}

/// The uid of the claim that the volume is for.
fn holder(volume: &PersistentVolume) -> Option<&str> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    reference.uid.as_deref().filter(|uid| !uid.is_empty())
}

fn version(volume: &PersistentVolume) -> Option<u64> {
    volume.metadata.resource_version.as_deref()?.parse().ok()
}

/// Whether what was written is known here by now, or there is no such volume any more.
fn is_shown(reserved: &Reserved, volumes: &Snapshot<PersistentVolume>) -> bool {
    let shown = volumes.get(&reserved.choice.volume.key());
    shown.is_none_or(|shown| reserved.written.is_some() && version(shown) >= reserved.written)
}

/// Writes into the volume for whom it is, unless that stands there; answers the volume as it is
/// then.
pub(crate) async fn reserve(
    client: &Client,
    choice: &Choice,
) -> Result<PersistentVolume, ClientError> {
    let (claim, key) = (&choice.claim, choice.volume.key());
    let mut tries = 0;
    loop {
        // Its state may have been written since it was chosen, and then it is still free.
        let mut volume: PersistentVolume = client.get(&key.namespace, &key.name).await?;
        if holder(&volume) == Some(claim.uid()) {
            return Ok(volume);
        }
        if holder(&volume).is_some() {
            // Somebody else has it: the old version of it is refused as a conflict.
            volume = PersistentVolume::clone(&choice.volume);
        }
        let spec = volume.spec.get_or_insert_default();
        let by_user = spec.claim_ref.is_some();
        spec.claim_ref = Some(reference(claim));
        if !by_user {
            let annotations = volume.metadata.annotations.get_or_insert_default();
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        tries += 1;
        match client.update(&volume).await {
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {}
            written => return written,
        }
    }
}

fn reference(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        kind: Some("PersistentVolumeClaim".to_owned()),
        api_version: Some("v1".to_owned()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..ObjectReference::default()
    }
}
