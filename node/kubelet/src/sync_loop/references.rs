//! Which pods name which objects: an index, so that a change of one object and the end of one pod
//! cost what they touch, and not a look at all pods.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::control_plane::ObjectRef;
use swiftlet_model::ids::{PodKey, PodUid};

use crate::images::pull_secrets;
use crate::kuberuntime::actions::as_container;
use crate::kuberuntime::env::references;
use crate::kuberuntime::sandbox::runtime_class;
use crate::volumes;

/// The index. Namespaces are counted as well: Services are heard of by namespace.
#[derive(Debug, Default)]
pub(super) struct References {
    pods: HashMap<PodUid, (String, HashSet<ObjectRef>)>,
    users: HashMap<ObjectRef, HashSet<PodUid>>,
    namespaces: HashMap<String, usize>,
}

/// What nobody names any more.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Orphans {
    pub(super) objects: Vec<ObjectRef>,
    pub(super) namespace: Option<String>,
}

impl References {
    /// Notes a pod, or its newer object. What only the older one named is given up when the pod
    /// goes: a container of it may still be starting.
    pub(super) fn note(&mut self, pod: &Pod) {
        let key = PodKey::of(pod);
        let (_, known) = self.pods.entry(key.uid.clone()).or_insert_with(|| {
            *self.namespaces.entry(key.namespace.clone()).or_default() += 1;
            (key.namespace.clone(), HashSet::new())
        });
        for object in all_references(pod) {
            if known.insert(object.clone()) {
                self.users
                    .entry(object)
                    .or_default()
                    .insert(key.uid.clone());
            }
        }
    }

    /// Forgets a pod.
    pub(super) fn remove(&mut self, uid: &PodUid) -> Orphans {
        let mut orphans = Orphans::default();
        let Some((namespace, objects)) = self.pods.remove(uid) else {
            return orphans;
        };
        for object in objects {
            if let Some(users) = self.users.get_mut(&object) {
                users.remove(uid);
                if users.is_empty() {
                    self.users.remove(&object);
                    orphans.objects.push(object);
                }
            }
        }
        if let Some(count) = self.namespaces.get_mut(&namespace) {
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(&namespace);
                orphans.namespace = Some(namespace);
            }
        }
        orphans
    }

    /// The pods that name an object.
    pub(super) fn users(&self, object: &ObjectRef) -> impl Iterator<Item = &PodUid> {
        self.users.get(object).into_iter().flatten()
    }
}

/// The objects that a pod names, in environments and volumes.
fn all_references(pod: &Pod) -> HashSet<ObjectRef> {
    let Some(spec) = &pod.spec else {
        return HashSet::new();
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let mut all: HashSet<_> = containers.flat_map(|one| references(pod, one)).collect();
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    all.extend(ephemeral.flat_map(|one| references(pod, &as_container(one))));
    all.extend(pull_secrets(pod));
    all.extend(runtime_class(pod));
    all.extend(volumes::references(pod));
    all
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMapVolumeSource, Volume};
    use proptest::prelude::*;
    use swiftlet_model::control_plane::RefKind;

    use super::*;
    use crate::testing::stand::pod;

    fn names(uid: &str, maps: &[u8]) -> Pod {
        let mut pod = pod(uid);
        let volume = |map: &u8| Volume {
            name: format!("v{map}"),
            config_map: Some(ConfigMapVolumeSource {
                name: format!("m{map}"),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        };
        pod.spec.as_mut().unwrap().volumes = Some(maps.iter().map(volume).collect());
        pod
    }

    proptest! {
        #[test]
        fn an_object_is_given_up_when_the_last_pod_that_named_it_goes(
            steps in prop::collection::vec(
                (0_u8..4, prop::collection::vec(0_u8..4, 0..3), any::<bool>()), 0..30)
        ) {
            let mut index = References::default();
            let mut oracle: HashMap<u8, HashSet<u8>> = HashMap::new();
            for (number, maps, comes) in steps {
                let uid = format!("p{number}");
                if comes {
                    index.note(&names(&uid, &maps));
                    oracle.entry(number).or_default().extend(maps);
                } else {
                    let gone = oracle.remove(&number).unwrap_or_default();
                    let left: HashSet<u8> = oracle.values().flatten().copied().collect();
                    let mut expected: Vec<_> = gone.difference(&left)
                        .map(|map| format!("m{map}")).collect();
                    let mut orphans: Vec<_> = index.remove(&uid.as_str().into()).objects
                        .into_iter().map(|object| object.name).collect();
                    expected.sort();
                    orphans.sort();
                    prop_assert_eq!(orphans, expected);
                }
                for map in 0..4 {
                    let object = ObjectRef {
                        kind: RefKind::ConfigMap,
                        namespace: "default".into(),
                        name: format!("m{map}"),
                    };
                    let users = oracle.values().filter(|maps| maps.contains(&map)).count();
                    prop_assert_eq!(index.users(&object).count(), users);
                }
            }
        }
    }
}
