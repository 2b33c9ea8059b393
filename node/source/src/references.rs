//! Objects of the API that a static pod names and cannot have
//! (`HasAPIObjectReference` in `pkg/api/pod/util.go`).

use k8s_openapi::api::core::v1::{Container, Pod, Volume};

/// The resource of the first object of the API that a pod names.
pub(crate) fn api_object(pod: &Pod) -> Option<&'static str> {
    let spec = pod.spec.as_ref()?;
    let account = spec.service_account_name.as_deref();
    if account.is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    if !spec
        .image_pull_secrets
        .iter()
        .flatten()
        .all(|one| one.name.is_empty())
    {
        return Some("secrets");
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Some("resourceclaims");
    }
    let volumes = spec.volumes.iter().flatten().find_map(in_volume);
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    volumes.or_else(|| containers.into_iter().find_map(in_container))
}

fn in_volume(volume: &Volume) -> Option<&'static str> {
    let projected = volume
        .projected
        .iter()
        .flat_map(|one| one.sources.iter().flatten());
    let secret_of_driver = volume
        .csi
        .iter()
        .any(|one| one.node_publish_secret_ref.is_some());
    if volume.secret.is_some() || secret_of_driver {
        return Some("secrets");
    }
    if volume.config_map.is_some() {
        return Some("configmaps");
    }
    if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims");
    }
    projected.into_iter().find_map(|source| {
        if source.secret.is_some() {
            Some("secrets")
        } else if source.config_map.is_some() {
            Some("configmaps")
        } else if source.service_account_token.is_some() {
            Some("serviceaccounts")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else {
            None
        }
    })
}

fn in_container(container: &Container) -> Option<&'static str> {
    let from = container.env_from.iter().flatten().find_map(|source| {
        let secret = source.secret_ref.as_ref().map(|_| "secrets");
        secret.or(source.config_map_ref.as_ref().map(|_| "configmaps"))
    });
    let mut variables = container.env.iter().flatten();
    from.or_else(|| {
        variables.find_map(|variable| {
            let source = variable.value_from.as_ref()?;
            let secret = source.secret_key_ref.as_ref().map(|_| "secrets");
            secret.or(source.config_map_key_ref.as_ref().map(|_| "configmaps"))
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(spec: Value) -> Option<&'static str> {
        let pod = serde_json::from_value(json!({"spec": spec})).expect("pod");
        api_object(&pod)
    }

    #[test]
    fn every_way_to_name_an_object_of_the_api_is_found() {
        let volume = |source: Value| {
            let mut volume = json!({"name": "v"});
            volume
                .as_object_mut()
                .expect("map")
                .extend(source.as_object().cloned().expect("map"));
            json!({"containers": [], "volumes": [volume]})
        };
        let variable = |source: Value| {
            let env = json!([{"name": "A", "valueFrom": source}]);
            json!({"containers": [{"name": "c", "env": env}]})
        };
        let key = json!({"name": "n", "key": "k"});
        for (spec, expected) in [
            (
                json!({"containers": [], "serviceAccountName": "robot"}),
                Some("serviceaccounts"),
            ),
            (
                json!({"containers": [], "imagePullSecrets": [{"name": "s"}]}),
                Some("secrets"),
            ),
            (
                volume(json!({"secret": {"secretName": "s"}})),
                Some("secrets"),
            ),
            (
                volume(json!({"configMap": {"name": "c"}})),
                Some("configmaps"),
            ),
            (
                volume(json!({"persistentVolumeClaim": {"claimName": "c"}})),
                Some("persistentvolumeclaims"),
            ),
            (
                volume(json!({"projected": {"sources": [
                    {"serviceAccountToken": {"path": "token"}},
                ]}})),
                Some("serviceaccounts"),
            ),
            (volume(json!({"hostPath": {"path": "/x"}})), None),
            (volume(json!({"emptyDir": {}})), None),
            (variable(json!({"secretKeyRef": key})), Some("secrets")),
            (
                variable(json!({"configMapKeyRef": key})),
                Some("configmaps"),
            ),
            (
                variable(json!({"fieldRef": {"fieldPath": "metadata.name"}})),
                None,
            ),
        ] {
            assert_eq!(resource(spec.clone()), expected, "{spec}");
        }
    }
}
