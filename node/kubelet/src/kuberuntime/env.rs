//! The environment of a container.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};
use swiftlet_model::control_plane::{ObjectRef, RefKind, ReferencedData};
use swiftlet_proto::quantity::Quantity;

use crate::kuberuntime::expand::expand;
use crate::resources::{container_limits, container_requests};

/// Objects that a container's environment names, with what they hold; `None`: no such object.
pub type Referenced = BTreeMap<ObjectRef, Option<ReferencedData>>;

/// What the environment needs to know of the node.
#[derive(Clone, Debug, Default)]
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
pub fn environment(
    pod: &Pod,
    container: &Container,
    referenced: &Referenced,
    facts: &EnvFacts,
) -> Result<Environment, EnvError> {
    let mut scope = Scope {
        pod,
        container,
        referenced,
        facts,
        values: BTreeMap::new(),
    };
    let mut order = Vec::new();
    scope.env_from(&mut order)?;
    for variable in container.env.iter().flatten() {
        if let Some(value) = scope.value(variable)? {
            scope.values.insert(variable.name.clone(), value);
            order.push(variable.name.clone());
        }
    }
    // A name that is written twice has its last value, at its first place.
    let mut seen = BTreeSet::new();
    order.retain(|name| seen.insert(name.clone()));
    let env = order.into_iter().filter_map(|name| {
        let value = scope.values.get(&name)?.clone();
        Some((name, value))
    });
    Ok((env.collect(), scope.values.clone()))
}

struct Scope<'a> {
    pod: &'a Pod,
    container: &'a Container,
    referenced: &'a Referenced,
    facts: &'a EnvFacts,
    values: BTreeMap<String, String>,
}

impl Scope<'_> {
    fn env_from(&mut self, order: &mut Vec<String>) -> Result<(), EnvError> {
        for source in self.container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            let named = [
                source.config_map_ref.as_ref().map(|one| {
                    (
                        RefKind::ConfigMap,
                        one.name.as_str(),
                        one.optional.unwrap_or_default(),
                    )
                }),
                source.secret_ref.as_ref().map(|one| {
                    (
                        RefKind::Secret,
                        one.name.as_str(),
                        one.optional.unwrap_or_default(),
                    )
                }),
            ];
            for (kind, name, optional) in named.into_iter().flatten() {
                let Some(data) = self.object(kind, name, optional)? else {
                    continue;
                };
                for (key, value) in data.iter() {
                    let name = format!("{prefix}{key}");
                    self.values
                        .insert(name.clone(), String::from_utf8_lossy(value).into_owned());
                    order.push(name);
                }
            }
        }
        Ok(())
    }

    /// The value of one variable; `None` if an optional reference is missing.
    fn value(&self, variable: &EnvVar) -> Result<Option<String>, EnvError> {
        let Some(from) = &variable.value_from else {
            let text = variable.value.as_deref().unwrap_or_default();
            return Ok(Some(expand(text, &self.values)));
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
        self.field(from).map(Some).map_err(failed)
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

    fn field(&self, from: &EnvVarSource) -> Result<String, String> {
        if let Some(field) = &from.field_ref {
            return self.pod_field(&field.field_path);
        }
        let Some(resource) = &from.resource_field_ref else {
            return Err("no source that this node serves".to_owned());
        };
        let name = resource
            .container_name
            .as_deref()
            .filter(|name| !name.is_empty());
        let spec = self.pod.spec.as_ref().ok_or("the pod has no spec")?;
        let mut all = spec
            .containers
            .iter()
            .chain(spec.init_containers.iter().flatten());
        let container = match name {
            None => self.container,
            Some(name) => all
                .find(|one| one.name == name)
                .ok_or_else(|| format!("container {name} not found"))?,
        };
        let divisor = resource
            .divisor
            .as_ref()
            .map_or("1", |divisor| divisor.0.as_str());
        self.resource(container, &resource.resource, divisor)
    }

    fn pod_field(&self, path: &str) -> Result<String, String> {
        let meta = &self.pod.metadata;
        let spec = self.pod.spec.as_ref();
        let value = match path {
            "metadata.name" => meta.name.clone(),
            "metadata.namespace" => meta.namespace.clone(),
            "metadata.uid" => meta.uid.clone(),
            "spec.nodeName" => Some(self.facts.node_name.clone()),
            "spec.serviceAccountName" => spec.and_then(|spec| spec.service_account_name.clone()),
            "status.hostIP" => self.facts.host_ips.first().cloned(),
            "status.hostIPs" => Some(self.facts.host_ips.join(",")),
            "status.podIP" => self.facts.pod_ips.first().cloned(),
            "status.podIPs" => Some(self.facts.pod_ips.join(",")),
            "metadata.labels" => Some(lines(meta.labels.as_ref())),
            "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
            other => return self.subscript(other),
        };
        Ok(value.unwrap_or_default())
    }

    /// `metadata.labels['key']` and `metadata.annotations['key']`.
    fn subscript(&self, path: &str) -> Result<String, String> {
        let meta = &self.pod.metadata;
        let parts = path
            .strip_suffix("']")
            .and_then(|path| path.split_once("['"));
        let (map, key) = match parts {
            Some(("metadata.labels", key)) => (&meta.labels, key),
            Some(("metadata.annotations", key)) => (&meta.annotations, key),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        };
        Ok(map
            .as_ref()
            .and_then(|map| map.get(key))
            .cloned()
            .unwrap_or_default())
    }

    fn resource(
        &self,
        container: &Container,
        resource: &str,
        divisor: &str,
    ) -> Result<String, String> {
        let facts = self.facts;
        let (limits, requests) = (container_limits(container), container_requests(container));
        let cpu_limit = limits.cpu_milli.unwrap_or(facts.allocatable_cpu_milli);
        let memory_limit = limits
            .memory_bytes
            .unwrap_or(facts.allocatable_memory_bytes);
        let (value, unit) = match resource {
            "limits.cpu" => (cpu_limit, 1000),
            "requests.cpu" => (requests.cpu_milli.unwrap_or_default(), 1000),
            "limits.memory" => (memory_limit, 1),
            "requests.memory" => (requests.memory_bytes.unwrap_or_default(), 1),
            other => return Err(format!("unsupported container resource : {other}")),
        };
        let divisor = Quantity::parse(divisor).map_err(|error| error.to_string())?;
        // The default divisor is 0 in stored objects and means 1.
        let by = match unit {
            1000 => divisor.milli_value(),
            _ => divisor.value(),
        };
        let by = if by <= 0 { unit } else { by };
        Ok(((value + by - 1) / by).to_string())
    }
}

/// `key="value"` lines, as the downward API writes maps.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={value:?}"));
    lines.collect::<Vec<_>>().join("\n")
}
