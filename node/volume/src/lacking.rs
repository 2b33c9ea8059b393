//! Volumes that were made without a control plane, and what they lack.
//!
//! A node that boots while its control plane cannot be reached starts the pods that it knows. Each
//! pod that came by the API has a token and the API's certificate in a volume: neither is of use
//! without the API, so that the pod starts without both, and has them as soon as there is an API.
//! What an earlier run of this program wrote stays, and is looked after as soon.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use swiftlet_model::ids::PodUid;

use crate::folders::Folders;
use crate::order::{Data, Order};
use crate::payload::Fetched;
use crate::plan::{Kind, Plan};

/// How soon it is tried again, if nobody says before that there is a control plane.
const RETRY: Duration = Duration::from_secs(30);

/// What the volumes that were made lack, in words; empty if all of it is there from before. `None`:
/// everything could be had.
pub(crate) fn look(folders: &Folders, order: &Order) -> Option<String> {
    let lists = order.volumes.iter().filter_map(|(plan, data)| {
        let lacking = of_volume(data)?;
        Some((plan, lacking))
    });
    let lists: Vec<_> = lists.filter(|(_, lacking)| !lacking.is_empty()).collect();
    let absent = lists.iter().filter_map(|(plan, lacking)| {
        let what = absent(folders, order, plan, lacking);
        let what = what.join(", ");
        (!what.is_empty()).then(|| format!("volume \"{}\" lacks its {what}", plan.name))
    });
    let absent = absent.collect::<Vec<_>>().join("; ");
    let why = "the control plane has not been reached since the node agent started";
    (!lists.is_empty()).then(|| match absent.as_str() {
        "" => String::new(),
        absent => format!("{absent}: {why}"),
    })
}

/// What could not be had, with the paths of its files.
fn of_volume(data: &Data) -> Option<Vec<(&str, &str)>> {
    let Data::Files(fetched) = data else {
        return None;
    };
    let lacking = fetched.iter().filter_map(|it| match it {
        Fetched::Lacking { what, path } => Some((what.as_str(), path.as_str())),
        _ => None,
    });
    Some(lacking.collect())
}

fn absent<'a>(
    folders: &Folders,
    order: &Order,
    plan: &Plan,
    lacking: &[(&'a str, &str)],
) -> Vec<&'a str> {
    let Kind::Files(files) = &plan.kind else {
        return Vec::new();
    };
    let folder = folders.volume(&order.key.uid, files.plugin, &plan.name);
    let absent = lacking
        .iter()
        .filter(|(_, path)| !folder.join(path).exists());
    absent.map(|(what, _)| *what).collect()
}

/// What volumes lack, by pod. The lock is held for a look-up and never across a wait; a task of its
/// own would cost more than it guards.
#[derive(Debug, Default)]
pub(crate) struct Lacking {
    pods: Mutex<HashMap<PodUid, String>>,
}

impl Lacking {
    /// The pod's volumes were made, without what `lacking` tells.
    pub(crate) fn put(&self, pod: &PodUid, lacking: Option<String>) {
        match lacking {
            Some(text) => drop(self.lock().insert(pod.clone(), text)),
            None => self.forget(pod),
        }
    }

    /// In words; `None` if nothing is absent.
    pub(crate) fn of(&self, pod: &PodUid) -> Option<String> {
        self.lock()
            .get(pod)
            .filter(|text| !text.is_empty())
            .cloned()
    }

    /// When the pod's volumes need another look.
    pub(crate) fn due(&self, pod: &PodUid) -> Option<Duration> {
        self.lock().contains_key(pod).then_some(RETRY)
    }

    /// Nothing is lacking, or the pod is gone.
    pub(crate) fn forget(&self, pod: &PodUid) {
        self.lock().remove(pod);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, String>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
