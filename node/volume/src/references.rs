//! Which pods use which ConfigMaps and Secrets, so that the control plane can be told when nobody
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use swiftlet_model::control_plane::ObjectRef;
use swiftlet_model::ids::PodUid;

/// Users of objects. The lock is held for a look-up and never across a wait; a task of its own
/// would cost more than it guards.
#[derive(Debug, Default)]
pub(crate) struct References {
    users: Mutex<BTreeMap<ObjectRef, BTreeSet<PodUid>>>,
}

impl References {
    /// The pod uses the object from now on.
    pub(crate) fn add(&self, object: &ObjectRef, pod: &PodUid) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.entry(object.clone()).or_default().insert(pod.clone());
    }

    /// The pod uses nothing any more; answers what no other pod uses either.
    pub(crate) fn remove(&self, pod: &PodUid) -> Vec<ObjectRef> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unused = Vec::new();
        users.retain(|object, pods| {
            if pods.remove(pod) && pods.is_empty() {
                unused.push(object.clone());
            }
            !pods.is_empty()
        });
        unused
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_model::control_plane::RefKind;

    use super::*;

    #[test]
    fn an_object_is_unused_when_its_last_pod_is_gone() {
        let object = |name: &str| ObjectRef {
            kind: RefKind::Secret,
            namespace: "default".into(),
            name: name.into(),
        };
        let references = References::default();
        let (first, second) = (PodUid::from("1"), PodUid::from("2"));
        references.add(&object("shared"), &first);
        references.add(&object("shared"), &second);
        references.add(&object("own"), &first);
        assert_eq!(references.remove(&first), [object("own")]);
        assert_eq!(references.remove(&second), [object("shared")]);
        assert!(references.remove(&second).is_empty());
    }
}
