//! Which ConfigMaps, Secrets and claims a pod names.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// The objects that one pod names, in its own namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    config_maps: HashSet<String>,
    secrets: HashSet<String>,
    claims: HashSet<String>,
}

impl References {
    /// Whether the pod names nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.config_maps.is_empty() && self.secrets.is_empty() && self.claims.is_empty()
    }

    /// Whether an object of this kind and name is among them.
    pub(crate) fn contains(&self, kind: &str, name: &str) -> bool {
        match kind {
            "ConfigMap" => self.config_maps.contains(name),
            "Secret" => self.secrets.contains(name),
            "PersistentVolumeClaim" => self.claims.contains(name),
            _ => false,
        }
    }

    /// The claims among them.
    pub(crate) fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(String::as_str)
    }

    fn config_map(&mut self, reference: Option<Reference>) {
        self.config_maps.extend(reference.and_then(|it| it.name));
    }

    fn secret(&mut self, reference: Option<Reference>) {
        self.secrets.extend(reference.and_then(|it| it.name));
    }

    fn volume(&mut self, pod: &str, volume: Volume) {
        let claim = volume.persistent_volume_claim.and_then(|it| it.claim_name);
        // The claim of an ephemeral volume bears both names
        // (k8s.io/component-helpers/storage/ephemeral).
        let own = volume.ephemeral.map(|_| format!("{pod}-{}", volume.name));
        self.claims.extend(claim.into_iter().chain(own));
        self.config_map(volume.config_map);
        self.secrets
            .extend(volume.secret.and_then(|secret| secret.secret_name));
        let projected = volume.projected.unwrap_or_default();
        for source in projected.sources.into_iter().flatten() {
            self.config_map(source.config_map);
            self.secret(source.secret);
        }
    }

    fn container(&mut self, container: Container) {
        for source in container.env_from.into_iter().flatten() {
            self.config_map(source.config_map_ref);
            self.secret(source.secret_ref);
        }
        for variable in container.env.into_iter().flatten() {
            let source = variable.value_from.unwrap_or_default();
            self.config_map(source.config_map_key_ref);
            self.secret(source.secret_key_ref);
        }
    }
}

/// What an encoded pod names. What cannot be read names nothing.
pub(crate) fn of(pod: &[u8]) -> References {
    let mut references = References::default();
    let (name, spec) = match serde_json::from_slice::<Pod>(pod) {
        Ok(pod) => (pod.metadata.name, pod.spec.unwrap_or_default()),
        Err(error) => {
            tracing::warn!(%error, "a pod's references cannot be read");
            return references;
        }
    };
    for volume in spec.volumes.into_iter().flatten() {
        references.volume(&name, volume);
    }
    let lists = [
        spec.containers,
        spec.init_containers,
        spec.ephemeral_containers,
    ];
    for container in lists.into_iter().flatten().flatten() {
        references.container(container);
    }
    for secret in spec.image_pull_secrets.into_iter().flatten() {
        references.secret(Some(secret));
    }
    references
}

#[derive(Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    volumes: Option<Vec<Volume>>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
    ephemeral_containers: Option<Vec<Container>>,
    image_pull_secrets: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    #[serde(default)]
    name: String,
    persistent_volume_claim: Option<Claim>,
    ephemeral: Option<IgnoredAny>,
    config_map: Option<Reference>,
    secret: Option<SecretVolume>,
    projected: Option<Projected>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    claim_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecretVolume {
    secret_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct Projected {
    sources: Option<Vec<ProjectedSource>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProjectedSource {
    config_map: Option<Reference>,
    secret: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    env: Option<Vec<Variable>>,
    env_from: Option<Vec<EnvFrom>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvFrom {
    config_map_ref: Option<Reference>,
    secret_ref: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    value_from: Option<VariableSource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VariableSource {
    config_map_key_ref: Option<Reference>,
    secret_key_ref: Option<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::of;

    #[test]
    fn a_pod_names_what_its_volumes_variables_and_pulls_refer_to_and_nothing_else() {
        let pod = json!({
            "metadata": {"name": "other", "labels": {"app": "label"}},
            "spec": {
                "volumes": [
                    {"name": "v", "configMap": {"name": "c1"}},
                    {"name": "w", "secret": {"secretName": "s1"}},
                    {"name": "x", "projected": {"sources": [
                        {"configMap": {"name": "c2"}},
                        {"secret": {"name": "s2"}},
                        {"serviceAccountToken": {"path": "token"}},
                    ]}},
                    {"name": "y", "emptyDir": {}},
                    {"name": "z", "persistentVolumeClaim": {"claimName": "p1"}},
                    {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                ],
                "initContainers": [
                    {"name": "i", "envFrom": [{"configMapRef": {"name": "c3"}}]},
                ],
                "containers": [{"name": "main", "image": "s9", "env": [
                    {"name": "A", "value": "plain"},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c4", "key": "k"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s4", "key": "k"}}},
                    {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ], "envFrom": [{"secretRef": {"name": "s3"}}]}],
                "imagePullSecrets": [{"name": "s5"}],
            },
        });
        let references = of(pod.to_string().as_bytes());
        for name in ["c1", "c2", "c3", "c4"] {
            assert!(references.contains("ConfigMap", name), "{name}");
            assert!(!references.contains("Secret", name), "{name}");
        }
        for name in ["s1", "s2", "s3", "s4", "s5"] {
            assert!(references.contains("Secret", name), "{name}");
        }
        let mut claims: Vec<_> = references.claims().collect();
        claims.sort_unstable();
        assert_eq!(claims, ["other-own", "p1"]);
        for name in ["other", "label", "v", "main", "s9", "plain", "k"] {
            assert!(!references.contains("Secret", name), "{name}");
            assert!(!references.contains("ConfigMap", name), "{name}");
        }
    }
}
