//! The environment of a container.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, Pod};
use swiftlet_model::control_plane::{ObjectRef, RefKind, ReferencedData};

use crate::kuberuntime::expand::expand;

mod fields;
pub mod services;

/// Reason of the Event about keys that cannot be variables.
pub const INVALID_NAMES: &str = "InvalidEnvironmentVariableNames";

/// Objects that a container's environment names, with what they hold; `None`: no such object.
pub type Referenced = BTreeMap<ObjectRef, Option<ReferencedData>>;

/// What the environment needs to know of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFacts {
    /// `spec.nodeName`.
    pub node_name: String,
    /// `status.hostIPs`.
    pub host_ips: Vec<String>,
    /// `status.podIPs`.
    pub pod_ips: Vec<String>,
    /// What limits fall back to, in thousandths of a CPU.
    pub allocatable_cpu_milli: i64,
    /// What limits fall back to, in bytes.
    pub allocatable_memory_bytes: i64,
    /// What limits fall back to, in bytes.
    pub allocatable_ephemeral_storage_bytes: i64,
}

impl EnvFacts {
    /// The same with these addresses of the pod.
    pub(crate) fn with_pod_ips(self, pod_ips: &[String]) -> Self {
        let pod_ips = pod_ips.to_vec();
        Self { pod_ips, ..self }
    }

    fn allocatable(&self, resource: &str) -> i64 {
        match resource {
            "cpu" => self.allocatable_cpu_milli,
            "memory" => self.allocatable_memory_bytes,
            "ephemeral-storage" => self.allocatable_ephemeral_storage_bytes,
            _ => 0,
        }
    }
}

/// Why a container has no configuration, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// A ConfigMap or Secret does not exist.
    #[error("{kind} \"{name}\" not found")]
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// It has no such key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// The key.
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A field that cannot be read.
    #[error("failed to resolve environment variable \"{variable}\": {cause}")]
    Field {
        /// The variable.
        variable: String,
        /// Why.
        cause: String,
    },
}

/// The ConfigMaps and Secrets that the environment of the container names.
pub fn references(pod: &Pod, container: &Container) -> BTreeSet<ObjectRef> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let object = |kind, name: &str| ObjectRef {
        kind,
        namespace: namespace.clone(),
        name: name.to_owned(),
    };
    let mut all = BTreeSet::new();
    for source in container.env_from.iter().flatten() {
        all.extend(
            source
                .config_map_ref
                .iter()
                .map(|one| object(RefKind::ConfigMap, &one.name)),
        );
        all.extend(
            source
                .secret_ref
                .iter()
                .map(|one| object(RefKind::Secret, &one.name)),
        );
    }
    for from in container
        .env
        .iter()
        .flatten()
        .filter_map(|one| one.value_from.as_ref())
    {
        let map = from.config_map_key_ref.as_ref();
        all.extend(map.map(|one| object(RefKind::ConfigMap, &one.name)));
        all.extend(
            from.secret_key_ref
                .as_ref()
                .map(|one| object(RefKind::Secret, &one.name)),
        );
    }
    all
}

/// Whether the environment can be written only once the pod has its address.
pub fn needs_pod_ip(container: &Container) -> bool {
    let fields = container
        .env
        .iter()
        .flatten()
        .filter_map(|one| one.value_from.as_ref());
    let mut fields = fields.filter_map(|from| from.field_ref.as_ref());
    fields.any(|field| field.field_path.starts_with("status.podIP"))
}

/// Variables in order, and by name.
pub type Environment = (Vec<(String, String)>, BTreeMap<String, String>);

/// The environment in order, and all variables by name for `$(VAR)` in command and arguments.
/// What the container writes wins over the variables of `services`, which come last.
pub fn environment(
    pod: &Pod,
    container: &Container,
    referenced: &Referenced,
    services: &BTreeMap<String, String>,
    facts: &EnvFacts,
) -> Result<Environment, EnvError> {
    let mut scope = Scope {
        pod,
        container,
        referenced,
        facts,
        values: BTreeMap::new(),
        known: services.clone(),
    };
    let mut order = Vec::new();
    scope.env_from(&mut order)?;
    for variable in container.env.iter().flatten() {
        if let Some(value) = scope.value(variable)? {
            scope.set(variable.name.clone(), value);
            order.push(variable.name.clone());
        }
    }
    // A name that is written twice has its last value, at its first place.
    let mut seen = BTreeSet::new();
    order.retain(|name| seen.insert(name.clone()));
    let written = order.into_iter().filter_map(|name| {
        let value = scope.values.get(&name)?.clone();
        Some((name, value))
    });
    let mut env: Vec<_> = written.collect();
    let rest = services
        .iter()
        .filter(|(name, _)| !scope.values.contains_key(*name));
    env.extend(rest.map(|(name, value)| (name.clone(), value.clone())));
    Ok((env, scope.known))
}

/// Messages about keys of whole ConfigMaps and Secrets that cannot be variables; such keys are left
/// out.
pub fn invalid_names(pod: &Pod, container: &Container, referenced: &Referenced) -> Vec<String> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut messages = Vec::new();
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        for (kind, name, _) in named(source) {
            let key = ObjectRef {
                kind,
                namespace: namespace.clone(),
                name: name.to_owned(),
            };
            let data = referenced.get(&key).cloned().flatten().unwrap_or_default();
            let names = data.keys().map(|key| format!("{prefix}{key}"));
            let invalid: Vec<_> = names.filter(|name| !is_variable(name)).collect();
            if invalid.is_empty() {
                continue;
            }
            let word = if kind == RefKind::Secret {
                "secret"
            } else {
                "configMap"
            };
            messages.push(format!(
                "Keys [{}] from the EnvFrom {word} {namespace}/{name} were skipped since they are \
                 considered invalid environment variable names.",
                invalid.join(", ")
            ));
        }
    }
    messages
}

/// Whether this can be a variable's name: printable ASCII without an equals sign
/// (`IsRelaxedEnvVarName` of the API's validation, in force since 1.34).
fn is_variable(name: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
    !name.is_empty() && name.bytes().all(fits)
}

/// The object that is to be taken whole, and whether it may be missing.
fn named(source: &EnvFromSource) -> impl Iterator<Item = (RefKind, &str, bool)> {
    let map = source.config_map_ref.as_ref().map(|one| {
        let optional = one.optional.unwrap_or_default();
        (RefKind::ConfigMap, one.name.as_str(), optional)
    });
    let secret = source.secret_ref.as_ref().map(|one| {
        let optional = one.optional.unwrap_or_default();
        (RefKind::Secret, one.name.as_str(), optional)
    });
    map.into_iter().chain(secret)
}

struct Scope<'a> {
    pod: &'a Pod,
    container: &'a Container,
    referenced: &'a Referenced,
    facts: &'a EnvFacts,
    /// What the container writes.
    values: BTreeMap<String, String>,
    /// The same over the variables of Services.
    known: BTreeMap<String, String>,
}

impl Scope<'_> {
    fn set(&mut self, name: String, value: String) {
        self.known.insert(name.clone(), value.clone());
        self.values.insert(name, value);
    }

    fn env_from(&mut self, order: &mut Vec<String>) -> Result<(), EnvError> {
        for source in self.container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            for (kind, name, optional) in named(source) {
                let Some(data) = self.object(kind, name, optional)? else {
                    continue;
                };
                for (key, value) in data.iter() {
                    let name = format!("{prefix}{key}");
                    if !is_variable(&name) {
                        continue;
                    }
                    order.push(name.clone());
                    self.set(name, String::from_utf8_lossy(value).into_owned());
                }
            }
        }
        Ok(())
    }

    /// The value of one variable; `None` if an optional reference is missing.
    fn value(&self, variable: &EnvVar) -> Result<Option<String>, EnvError> {
        let Some(from) = &variable.value_from else {
            let text = variable.value.as_deref().unwrap_or_default();
            return Ok(Some(expand(text, &self.known)));
        };
        if let Some(key) = &from.config_map_key_ref {
            return self.key(RefKind::ConfigMap, &key.name, &key.key, key.optional);
        }
        if let Some(key) = &from.secret_key_ref {
            return self.key(RefKind::Secret, &key.name, &key.key, key.optional);
        }
        let failed = |cause| EnvError::Field {
            variable: variable.name.clone(),
            cause,
        };
        fields::field(self.pod, self.container, from, self.facts)
            .map(Some)
            .map_err(failed)
    }

    fn object(
        &self,
        kind: RefKind,
        name: &str,
        optional: bool,
    ) -> Result<Option<ReferencedData>, EnvError> {
        let namespace = self.pod.metadata.namespace.clone().unwrap_or_default();
        let key = ObjectRef {
            kind,
            namespace,
            name: name.to_owned(),
        };
        match self.referenced.get(&key).cloned().flatten() {
            None if !optional => Err(EnvError::NoObject {
                kind: kind.word(),
                name: name.to_owned(),
            }),
            found => Ok(found),
        }
    }

    fn key(
        &self,
        kind: RefKind,
        name: &str,
        key: &str,
        optional: Option<bool>,
    ) -> Result<Option<String>, EnvError> {
        let optional = optional.unwrap_or_default();
        let Some(data) = self.object(kind, name, optional)? else {
            return Ok(None);
        };
        match data.get(key) {
            Some(value) => Ok(Some(String::from_utf8_lossy(value).into_owned())),
            None if optional => Ok(None),
            None => Err(EnvError::NoKey {
                key: key.to_owned(),
                kind: kind.as_str(),
                namespace: self.pod.metadata.namespace.clone().unwrap_or_default(),
                name: name.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
