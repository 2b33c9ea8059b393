//! Pods of one source that are taken for the same pod.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

/// The pods, without those whose name or uid an earlier one has already: by either they would share
/// a folder, a cgroup, a mirror. Each comes with the place of its manifest.
pub(crate) fn unique<'a>(pods: impl Iterator<Item = (String, &'a Arc<Pod>)>) -> Vec<Arc<Pod>> {
    let (mut names, mut uids) = (HashSet::new(), HashSet::new());
    let mut kept = Vec::new();
    for (place, pod) in pods {
        let meta = &pod.metadata;
        let name = (meta.namespace.as_deref(), meta.name.as_deref());
        let uid = meta.uid.as_deref();
        if names.contains(&name) || uids.contains(&uid) {
            let (name, uid) = (name.1.unwrap_or_default(), uid.unwrap_or_default());
            tracing::error!(place, name, uid, "duplicate name or uid of a pod, ignored");
            continue;
        }
        names.insert(name);
        uids.insert(uid);
        kept.push(Arc::clone(pod));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_each_name_and_of_each_uid_is_kept() {
        let pod = |name: &str, uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some(name.to_owned());
            pod.metadata.uid = Some(uid.to_owned());
            Arc::new(pod)
        };
        let pods = [pod("a", "1"), pod("b", "1"), pod("a", "2"), pod("b", "2")];
        let kept = unique(pods.iter().map(|pod| (String::new(), pod)));
        assert_eq!(kept, [Arc::clone(&pods[0]), Arc::clone(&pods[3])]);
    }
}
