//! Volumes that pods on their way to a node will have.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use swiftlet_client::reflector::Snapshot;
use swiftlet_client::{Client, ClientError, Object};
use swiftlet_proto::claim::{
    Place, held, is_held_for, matching, meets, reaches, reserve_for, wanted_size,
};

#[cfg(test)]
mod tests;

/// Writes of one volume before the pod is put back: its state is written once or twice when it is
/// new.
const TRIES_MAX: usize = 3;

/// A volume for a claim.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) claim: Arc<PersistentVolumeClaim>,
    pub(crate) volume: Arc<PersistentVolume>,
}

/// A claim that waits for its pod.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) claim: Arc<PersistentVolumeClaim>,
    /// Whether somebody makes a volume for it if there is none.
    pub(crate) is_made: bool,
}

/// A claim, and the volumes that it can have on some node.
#[derive(Clone, Debug)]
pub(crate) struct Foreseen {
    waiting: Waiting,
    volumes: Volumes,
}

#[derive(Clone, Debug)]
enum Volumes {
    /// This one is reserved for it: it gets no other, whoever could make one.
    Own(Arc<PersistentVolume>),
    /// These are free for it, the best first.
    Free(Vec<Arc<PersistentVolume>>),
}

/// Why a volume is not reserved.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReserveError {
    /// It is another volume by now, somebody else's, or does not fit any more.
    #[error("volume {0:?} is not free any more")]
    Taken(String),
    /// The API refused.
    #[error(transparent)]
    Api(#[from] ClientError),
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
    /// What each of these claims can have, the smallest claim first. All volumes are walked here
    /// once, and not for each node.
    pub(crate) fn foresee(
        &self,
        mut claims: Vec<Waiting>,
        volumes: &Snapshot<PersistentVolume>,
    ) -> Vec<Foreseen> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.retain(|_, one| !is_shown(one, volumes));
        claims.sort_by_cached_key(|one| (wanted_size(&one.claim), one.claim.key()));
        let foresee = |waiting: Waiting| {
            let claim = &waiting.claim;
            let reserved = chosen
                .values()
                .find(|one| one.choice.claim.uid() == claim.uid());
            let own = reserved.map(|one| &one.choice.volume);
            let volumes = if let Some(own) = own.or_else(|| held(volumes.iter(), claim)) {
                Volumes::Own(Arc::clone(own))
            } else {
                let free = volumes
                    .iter()
                    .filter(|volume| !chosen.contains_key(volume.name()));
                Volumes::Free(matching(free, claim).into_iter().cloned().collect())
            };
            Foreseen { waiting, volumes }
        };
        claims.into_iter().map(foresee).collect()
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

/// Volumes for these claims that this node can use; `None` if there is none for one of them and
/// nobody makes one.
pub(crate) fn choose(claims: &[Foreseen], node: Place<'_>) -> Option<Vec<Choice>> {
    let mut found: Vec<Choice> = Vec::new();
    for one in claims {
        let volume = match &one.volumes {
            // One that is somewhere else is not made again here.
            Volumes::Own(own) if !reaches(own, node) => return None,
            Volumes::Own(own) => Some(own),
            Volumes::Free(free) => free.iter().find(|volume| {
                let mut names = found.iter().map(|choice| choice.volume.name());
                !names.any(|name| name == volume.name()) && reaches(volume, node)
            }),
        };
        match volume {
            Some(volume) => found.push(Choice {
                volume: Arc::clone(volume),
                claim: Arc::clone(&one.waiting.claim),
            }),
            None if one.waiting.is_made => {}
            None => return None,
        }
    }
    Some(found)
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
) -> Result<PersistentVolume, ReserveError> {
    let (claim, key) = (&choice.claim, choice.volume.key());
    let mut tries = 0;
    loop {
        // Its state may have been written since it was chosen, and then it is still free.
        let mut volume: PersistentVolume = client.get(&key.namespace, &key.name).await?;
        if is_held_for(&volume, claim) {
            return Ok(volume);
        }
        // An administrator may have reserved it for somebody else, with a name alone, or have
        // deleted it, or made another one of that name.
        if volume.uid() != choice.volume.uid() || !meets(&volume, claim) {
            return Err(ReserveError::Taken(key.name));
        }
        reserve_for(&mut volume, claim);
        tries += 1;
        match client.update(&volume).await {
            Err(error) if error.is_conflict() && tries < TRIES_MAX => {}
            written => return Ok(written?),
        }
    }
}
