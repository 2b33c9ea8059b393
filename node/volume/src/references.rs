//! Which pods use which persistent volumes, so that the control plane can be told when nobody does.
//! Everything else that a pod uses it names, and the kubelet counts that; a volume is named by the
//! claim alone, which is read here.

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

    /// The pod uses nothing any more; `unused` is told of what no other pod uses either. It is
    /// called under the lock, so that a pod that begins to use it comes before or after.
    pub(crate) fn remove(&self, pod: &PodUid, unused: impl Fn(&ObjectRef)) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        users.retain(|object, pods| {
            if pods.remove(pod) && pods.is_empty() {
                unused(object);
            }
            !pods.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_model::control_plane::RefKind;

    use super::*;

    #[test]
    fn an_object_is_unused_when_its_last_pod_is_gone() {
        let object = |name: &str| ObjectRef {
            kind: RefKind::PersistentVolume,
            namespace: String::new(),
            name: name.into(),
        };
        let references = References::default();
        let (first, second) = (PodUid::from("1"), PodUid::from("2"));
        references.add(&object("shared"), &first);
        references.add(&object("shared"), &second);
        references.add(&object("own"), &first);
        let remove = |pod: &PodUid| {
            let unused = std::cell::RefCell::new(Vec::new());
            references.remove(pod, |object| unused.borrow_mut().push(object.clone()));
            unused.into_inner()
        };
        assert_eq!(remove(&first), [object("own")]);
        assert_eq!(remove(&second), [object("shared")]);
        assert!(remove(&second).is_empty());
    }
}
