//! The sources of pods, merged into one stream of updates: the control plane, the static pods of
//! files and of an HTTP document, and, until the control plane is there, what it said last.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::ControlPlaneEvent;
use swiftlet_model::ids::PodKey;
pub use swiftlet_model::sources::Source;
use swiftlet_model::sources::{CONFIG_SOURCE, SourcePods, annotation, is_mirror};

use crate::pod_manager::{PodManager, full_name};

/// What became of a desired pod.
#[derive(Clone, Debug)]
pub enum PodUpdate {
    /// It was not known before.
    Add(Arc<Pod>),
    /// Its spec or metadata changed.
    Update(Arc<Pod>),
    /// Its status alone changed: someone else wrote it, or we did.
    Reconcile(Arc<Pod>),
    /// The API has a new object for it, in which nothing stands of what was stored before.
    ShownAnew(Arc<Pod>),
    /// It shall end, with its grace period.
    Delete(Arc<Pod>),
    /// Its object is gone.
    Remove(PodKey),
}

/// Compares what sources say with what is known.
#[derive(Debug)]
pub struct PodConfig {
    expected: BTreeSet<Source>,
    synced: BTreeSet<Source>,
}

impl Default for PodConfig {
    fn default() -> Self {
        Self::new([])
    }
}

impl PodConfig {
    /// The control plane, and other sources.
    pub fn new(others: impl IntoIterator<Item = Source>) -> Self {
        let all = others.into_iter().chain([Source::ControlPlane]);
        Self {
            expected: all.collect(),
            synced: BTreeSet::new(),
        }
    }

    /// Whether every source has listed its pods: before that nothing may be called an orphan.
    pub fn is_synced(&self) -> bool {
        self.expected.is_subset(&self.synced)
    }

    /// Whether the control plane has listed its pods.
    pub fn is_control_plane_synced(&self) -> bool {
        self.synced.contains(&Source::ControlPlane)
    }

    /// Turns a message of the control plane into updates, and keeps `pods` up to date.
    pub fn take(&mut self, event: ControlPlaneEvent, pods: &mut PodManager) -> Vec<PodUpdate> {
        match event {
            ControlPlaneEvent::Pods(all) => {
                self.synced.insert(Source::ControlPlane);
                let (mirrors, all) = all.into_iter().partition(|pod| is_mirror(pod));
                let mut updates = replace(Source::ControlPlane, all, pods);
                updates.extend(replace_mirrors(mirrors, pods));
                updates
            }
            ControlPlaneEvent::PodUpsert(pod) if is_mirror(&pod) => {
                upsert_mirror(pod, pods).into_iter().collect()
            }
            ControlPlaneEvent::PodUpsert(pod) => {
                let update = upsert(Source::ControlPlane, pod, pods);
                update.into_iter().collect()
            }
            ControlPlaneEvent::PodRemoved(key) => {
                if pods.remove_mirror(&key).is_some() {
                    return Vec::new();
                }
                let removed = pods.remove(&key.uid);
                removed
                    .map(|_| PodUpdate::Remove(key))
                    .into_iter()
                    .collect()
            }
            ControlPlaneEvent::Referenced(_) | ControlPlaneEvent::Disconnected => Vec::new(),
        }
    }

    /// Turns the list of another source into updates.
    pub fn take_source(&mut self, list: SourcePods, pods: &mut PodManager) -> Vec<PodUpdate> {
        self.synced.insert(list.source);
        let with_status = list.pods.into_iter().map(|pod| {
            let mirror = pods.mirror(&full_name(&pod));
            mirror.map_or_else(|| Arc::clone(&pod), |mirror| with_status_of(&pod, mirror))
        });
        let all = with_status.collect();
        replace(list.source, all, pods)
    }

    /// The pods that the control plane named last in an earlier run of this program. They count
    /// until it says what is so now; nothing becomes an orphan by them.
    pub fn take_last_known(&mut self, all: Vec<Arc<Pod>>, pods: &mut PodManager) -> Vec<PodUpdate> {
        if self.is_control_plane_synced() {
            return Vec::new();
        }
        let all = all.into_iter().filter(|pod| !is_mirror(pod));
        let source = Source::ControlPlane;
        all.filter_map(|pod| upsert(source, pod, pods)).collect()
    }
}

/// A full list: what is not in it does not exist.
fn replace(source: Source, all: Vec<Arc<Pod>>, pods: &mut PodManager) -> Vec<PodUpdate> {
    let listed: HashSet<_> = all.iter().map(|pod| PodKey::of(pod).uid).collect();
    let gone = pods
        .of_source(source)
        .into_iter()
        .map(|pod| PodKey::of(&pod));
    let gone: Vec<PodKey> = gone.filter(|key| !listed.contains(&key.uid)).collect();
    let mut updates = Vec::new();
    for key in gone {
        pods.remove(&key.uid);
        updates.push(PodUpdate::Remove(key));
    }
    updates.extend(all.into_iter().filter_map(|pod| upsert(source, pod, pods)));
    updates
}

fn replace_mirrors(all: Vec<Arc<Pod>>, pods: &mut PodManager) -> Vec<PodUpdate> {
    let listed: HashSet<_> = all.iter().map(|pod| PodKey::of(pod).uid).collect();
    let known: Vec<PodKey> = pods.mirrors().values().map(|pod| PodKey::of(pod)).collect();
    for key in known.iter().filter(|key| !listed.contains(&key.uid)) {
        pods.remove_mirror(key);
    }
    let updates = all.into_iter().filter_map(|pod| upsert_mirror(pod, pods));
    updates.collect()
}

/// A mirror pod never runs: its status is what the API shows of the static pod.
fn upsert_mirror(mirror: Arc<Pod>, pods: &mut PodManager) -> Option<PodUpdate> {
    let name = full_name(&mirror);
    let before = pods.put_mirror(Arc::clone(&mirror));
    let known = pods.statics().find(|pod| full_name(pod) == name)?;
    let shown = with_status_of(known, &mirror);
    let unchanged = shown.status == known.status;
    let source = source_of(known);
    pods.put(source, Arc::clone(&shown));
    match before {
        Some(before) if before.metadata.uid == mirror.metadata.uid => {
            (!unchanged).then_some(PodUpdate::Reconcile(shown))
        }
        _ => Some(PodUpdate::ShownAnew(shown)),
    }
}

fn source_of(pod: &Pod) -> Source {
    match annotation(pod, CONFIG_SOURCE) {
        Some("http") => Source::Http,
        _ => Source::File,
    }
}

fn with_status_of(pod: &Pod, mirror: &Pod) -> Arc<Pod> {
    Arc::new(Pod {
        metadata: pod.metadata.clone(),
        spec: pod.spec.clone(),
        status: mirror.status.clone(),
    })
}

fn upsert(source: Source, pod: Arc<Pod>, pods: &mut PodManager) -> Option<PodUpdate> {
    let before = pods.put(source, Arc::clone(&pod));
    let Some(before) = before else {
        return Some(PodUpdate::Add(pod));
    };
    if pod.metadata.deletion_timestamp.is_some() && before.metadata != pod.metadata {
        return Some(PodUpdate::Delete(pod));
    }
    let same_spec = before.spec == pod.spec && same_metadata(&before, &pod);
    match (same_spec, before.status == pod.status) {
        (true, true) => None,
        (true, false) => Some(PodUpdate::Reconcile(pod)),
        (false, _) => Some(PodUpdate::Update(pod)),
    }
}

/// Fields of the metadata that change with every write do not count.
fn same_metadata(before: &Pod, pod: &Pod) -> bool {
    let (before, pod) = (&before.metadata, &pod.metadata);
    before.labels == pod.labels
        && before.annotations == pod.annotations
        && before.deletion_timestamp == pod.deletion_timestamp
        && before.generation == pod.generation
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use swiftlet_model::sources::CONFIG_MIRROR;

    use super::*;

    fn pod(uid: &str, generation: i64) -> Arc<Pod> {
        let metadata = ObjectMeta {
            name: Some(uid.to_owned()),
            uid: Some(uid.to_owned()),
            generation: Some(generation),
            ..ObjectMeta::default()
        };
        Arc::new(Pod {
            metadata,
            ..Pod::default()
        })
    }

    #[test]
    fn a_full_list_removes_what_it_does_not_name_and_repeats_nothing() {
        let (mut config, mut pods) = (PodConfig::default(), PodManager::default());
        assert!(!config.is_synced());
        let first = ControlPlaneEvent::Pods(vec![pod("a", 1), pod("b", 1)]);
        let updates = config.take(first, &mut pods);
        assert!(matches!(
            updates.as_slice(),
            [PodUpdate::Add(_), PodUpdate::Add(_)]
        ));
        assert!(config.is_synced());
        let second = ControlPlaneEvent::Pods(vec![pod("b", 1), pod("c", 1)]);
        let updates = config.take(second, &mut pods);
        assert!(
            matches!(updates.as_slice(), [PodUpdate::Remove(key), PodUpdate::Add(_)]
            if key.uid.as_str() == "a")
        );
        let again = config.take(ControlPlaneEvent::PodUpsert(pod("c", 1)), &mut pods);
        assert!(again.is_empty());
        let newer = config.take(ControlPlaneEvent::PodUpsert(pod("c", 2)), &mut pods);
        assert!(matches!(newer.as_slice(), [PodUpdate::Update(_)]));
    }
    fn marked(name: &str, uid: &str, mark: (&str, &str)) -> Arc<Pod> {
        let mut pod = Pod::clone(&pod(uid, 1));
        pod.metadata.name = Some(name.to_owned());
        let annotations = [(mark.0.to_owned(), mark.1.to_owned())];
        pod.metadata.annotations = Some(annotations.into());
        Arc::new(pod)
    }

    fn file(pods: Vec<Arc<Pod>>) -> SourcePods {
        let source = Source::File;
        SourcePods { source, pods }
    }

    #[test]
    fn a_list_of_one_source_leaves_the_pods_of_the_others() {
        let mut config = PodConfig::new([Source::File]);
        let mut pods = PodManager::default();
        config.take(ControlPlaneEvent::Pods(vec![pod("api", 1)]), &mut pods);
        assert!(!config.is_synced(), "files have not been read");
        let one = marked("etcd", "s-1", (CONFIG_SOURCE, "file"));
        config.take_source(file(vec![one]), &mut pods);
        assert!(config.is_synced());
        config.take(ControlPlaneEvent::Pods(Vec::new()), &mut pods);
        assert_eq!(pods.snapshot().len(), 1);
        // A changed file is another pod.
        let two = marked("etcd", "s-2", (CONFIG_SOURCE, "file"));
        let updates = config.take_source(file(vec![two]), &mut pods);
        let [PodUpdate::Remove(gone), PodUpdate::Add(new)] = updates.as_slice() else {
            panic!("{updates:?}");
        };
        assert_eq!(gone.uid.as_str(), "s-1");
        assert_eq!(new.metadata.uid.as_deref(), Some("s-2"));
    }

    #[test]
    fn a_mirror_pod_is_no_pod_of_its_own() {
        let mut config = PodConfig::new([Source::File]);
        let mut pods = PodManager::default();
        let mirror = marked("etcd", "m-1", (CONFIG_MIRROR, "s-1"));
        let none = config.take(ControlPlaneEvent::Pods(vec![mirror]), &mut pods);
        assert!(none.is_empty() && pods.snapshot().is_empty());
        let one = marked("etcd", "s-1", (CONFIG_SOURCE, "file"));
        let added = config.take_source(file(vec![one.clone()]), &mut pods);
        assert!(matches!(added.as_slice(), [PodUpdate::Add(_)]));
        let again = config.take_source(file(vec![one]), &mut pods);
        assert!(again.is_empty());
        let removed = ControlPlaneEvent::PodRemoved(PodKey {
            namespace: String::new(),
            name: "etcd".into(),
            uid: "m-1".into(),
        });
        assert!(config.take(removed, &mut pods).is_empty());
        assert_eq!(pods.snapshot().len(), 1, "the static pod goes on");
        let mirror = marked("etcd", "m-2", (CONFIG_MIRROR, "s-1"));
        let anew = config.take(ControlPlaneEvent::PodUpsert(mirror), &mut pods);
        assert!(matches!(anew.as_slice(), [PodUpdate::ShownAnew(_)]));
    }

    #[test]
    fn what_was_known_last_counts_until_the_control_plane_speaks() {
        let (mut config, mut pods) = (PodConfig::default(), PodManager::default());
        let last = config.take_last_known(vec![pod("a", 1), pod("b", 1)], &mut pods);
        assert_eq!(last.len(), 2);
        assert!(!config.is_synced(), "nothing may be called an orphan by it");
        let now = config.take(ControlPlaneEvent::Pods(vec![pod("b", 1)]), &mut pods);
        assert!(matches!(now.as_slice(), [PodUpdate::Remove(key)] if key.uid.as_str() == "a"));
        let late = config.take_last_known(vec![pod("a", 1)], &mut pods);
        assert!(late.is_empty());
    }
}
