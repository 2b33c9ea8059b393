//! What the fake remembers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde_json::{Value, json};
use swiftlet_proto::selector::{FieldRequirement, LabelSelector, parse_field_selector};

use super::{lock, object, patch};
use crate::api::{
    ApiError, DeleteParameters, ObjectName, PatchKind, RawEvent, ResourceName, Selection, WatchKind,
};

type Key = (ResourceName, String, String);

/// All objects and all changes.
#[derive(Default)]
pub(super) struct State {
    objects: BTreeMap<Key, Value>,
    log: Arc<Mutex<Log>>,
    revision: u64,
    names: u64,
}

/// All changes since the last compaction.
#[derive(Default)]
pub(super) struct Log {
    changes: Vec<Logged>,
    oldest: u64,
}

struct Logged {
    revision: u64,
    resource: ResourceName,
    old: Option<Value>,
    new: Option<Value>,
}

/// A selection that has been parsed.
pub(super) struct Filter {
    resource: ResourceName,
    namespace: Option<String>,
    labels: LabelSelector,
    fields: Vec<FieldRequirement>,
}

/// A refusal.
pub fn error(code: i32, reason: &str, message: &str) -> ApiError {
    ApiError(Box::new(Status {
        code: Some(code),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    }))
}

impl State {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn log(&self) -> Arc<Mutex<Log>> {
        Arc::clone(&self.log)
    }

    pub(super) fn compact(&self) {
        let mut log = lock(&self.log);
        log.oldest = self.revision;
        log.changes.clear();
    }

    pub(super) fn get(&self, name: &ObjectName) -> Result<Bytes, ApiError> {
        Ok(encode(self.find(name)?))
    }

    pub(super) fn list(&self, filter: &Filter) -> Vec<Bytes> {
        let objects = self
            .objects
            .iter()
            .filter(|((resource, ..), _)| *resource == filter.resource);
        objects
            .map(|(_, object)| object)
            .filter(|object| filter.selects(object))
            .map(encode)
            .collect()
    }

    pub(super) fn create(&mut self, name: &ObjectName, body: &[u8]) -> Result<Bytes, ApiError> {
        let body = parse(body)?;
        if name.subresource == "binding" {
            return self.bind(name, &body);
        }
        self.names += 1;
        let new = object::admitted(name, body, self.names)?;
        let key = (
            name.resource,
            name.namespace.clone(),
            object::text(&new, "/metadata/name"),
        );
        if self.objects.contains_key(&key) {
            let message = format!("{} \"{}\" already exists", name.resource.plural, key.2);
            return Err(error(409, "AlreadyExists", &message));
        }
        Ok(self.put(key, new))
    }

    pub(super) fn update(&mut self, name: &ObjectName, body: &[u8]) -> Result<Bytes, ApiError> {
        let body = parse(body)?;
        self.replace(name, body)
    }

    pub(super) fn patch(
        &mut self,
        name: &ObjectName,
        kind: PatchKind,
        body: &[u8],
    ) -> Result<Bytes, ApiError> {
        let patch = parse(body)?;
        let mut new = self.find(name)?.clone();
        match kind {
            PatchKind::Merge => patch::merge(&mut new, &patch, false),
            PatchKind::Strategic => patch::merge(&mut new, &patch, true),
            PatchKind::Json => {
                let bad = |code, why: String| error(code, "Invalid", &why);
                let operations: json_patch::Patch = serde_json::from_value(patch.clone())
                    .map_err(|why| bad(400, why.to_string()))?;
                json_patch::patch(&mut new, &operations)
                    .map_err(|why| bad(422, why.to_string()))?;
            }
        }
        if patch.pointer("/metadata/resourceVersion").is_none() {
            object::set(&mut new, "resourceVersion", Value::Null);
        }
        self.replace(name, new)
    }

    pub(super) fn delete(
        &mut self,
        name: &ObjectName,
        parameters: &DeleteParameters,
    ) -> Result<Bytes, ApiError> {
        let old = self.find(name)?.clone();
        let uid = object::text(&old, "/metadata/uid");
        if parameters
            .uid
            .as_ref()
            .is_some_and(|expected| *expected != uid)
        {
            return Err(error(
                409,
                "Conflict",
                "the UID in the precondition does not match",
            ));
        }
        let revision = object::text(&old, "/metadata/resourceVersion");
        let expected = parameters.resource_version.as_ref();
        if expected.is_some_and(|expected| *expected != revision) {
            return Err(error(
                409,
                "Conflict",
                "the ResourceVersion in the precondition does not match",
            ));
        }
        let key = (name.resource, name.namespace.clone(), name.name.clone());
        match object::deletion(name, &old, parameters) {
            Some(new) if new == old => Ok(encode(&old)),
            Some(new) => Ok(self.put(key, new)),
            None => Ok(self.remove(&key)),
        }
    }

    fn bind(&mut self, name: &ObjectName, binding: &Value) -> Result<Bytes, ApiError> {
        let mut pod = self.find(name)?.clone();
        let bound = object::text(&pod, "/spec/nodeName");
        if !bound.is_empty() {
            let message = format!("pod {} is already assigned to node {bound:?}", name.name);
            return Err(error(409, "Conflict", &message));
        }
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        let condition = json!({"conditions": [{"type": "PodScheduled", "status": "True"}]});
        let status = pod.as_object_mut().and_then(|pod| pod.get_mut("status"));
        match status {
            Some(status) => patch::merge(status, &condition, true),
            None => pod["status"] = condition,
        }
        let key = (name.resource, name.namespace.clone(), name.name.clone());
        Ok(self.put(key, pod))
    }

    fn replace(&mut self, name: &ObjectName, body: Value) -> Result<Bytes, ApiError> {
        let old = self.find(name)?.clone();
        let expected = object::text(&body, "/metadata/resourceVersion");
        if !expected.is_empty() && expected != object::text(&old, "/metadata/resourceVersion") {
            let message = format!(
                "Operation cannot be fulfilled on {} \"{}\": the object has been modified; please \
                 apply your changes to the latest version and try again",
                name.resource.plural, name.name
            );
            return Err(error(409, "Conflict", &message));
        }
        let new = object::replaced(name, &old, body);
        let key = (name.resource, name.namespace.clone(), name.name.clone());
        if object::is_finished(&new) {
            return Ok(self.remove(&key));
        }
        if new == old {
            return Ok(encode(&old));
        }
        Ok(self.put(key, new))
    }

    fn put(&mut self, key: Key, mut new: Value) -> Bytes {
        self.revision += 1;
        object::set(
            &mut new,
            "resourceVersion",
            json!(self.revision.to_string()),
        );
        let old = self.objects.insert(key.clone(), new.clone());
        let bytes = encode(&new);
        self.record(key.0, old, Some(new));
        bytes
    }

    fn remove(&mut self, key: &Key) -> Bytes {
        self.revision += 1;
        let Some(mut old) = self.objects.remove(key) else {
            return Bytes::new();
        };
        object::set(
            &mut old,
            "resourceVersion",
            json!(self.revision.to_string()),
        );
        let bytes = encode(&old);
        self.record(key.0, Some(old), None);
        bytes
    }

    fn record(&self, resource: ResourceName, old: Option<Value>, new: Option<Value>) {
        let logged = Logged {
            revision: self.revision,
            resource,
            old,
            new,
        };
        lock(&self.log).changes.push(logged);
    }

    fn find(&self, name: &ObjectName) -> Result<&Value, ApiError> {
        let key = (name.resource, name.namespace.clone(), name.name.clone());
        self.objects.get(&key).ok_or_else(|| {
            let message = format!("{} \"{}\" not found", name.resource.plural, name.name);
            error(404, "NotFound", &message)
        })
    }
}

impl Log {
    /// The selected changes after `position`, which moves on.
    pub(super) fn since(
        &self,
        filter: &Filter,
        position: &mut u64,
    ) -> Result<Vec<RawEvent>, ApiError> {
        if *position < self.oldest {
            return Err(error(410, "Expired", "too old resource version"));
        }
        let start = self
            .changes
            .partition_point(|change| change.revision <= *position);
        let changes = &self.changes[start..];
        if let Some(last) = changes.last() {
            *position = last.revision;
        }
        Ok(changes
            .iter()
            .filter_map(|change| filter.event(change))
            .collect())
    }
}

impl Filter {
    pub(super) fn new(selection: &Selection) -> Result<Self, ApiError> {
        let invalid = |cause: &dyn std::fmt::Display| error(400, "BadRequest", &cause.to_string());
        Ok(Self {
            resource: selection.resource,
            namespace: selection.namespace.clone(),
            labels: LabelSelector::parse(&selection.label_selector)
                .map_err(|cause| invalid(&cause))?,
            fields: parse_field_selector(&selection.field_selector)
                .map_err(|cause| invalid(&cause))?,
        })
    }

    fn selects(&self, object: &Value) -> bool {
        let namespace = object::text(object, "/metadata/namespace");
        self.namespace
            .as_ref()
            .is_none_or(|expected| *expected == namespace)
            && self.labels.matches(&object::labels(object))
            && self.fields.iter().all(|requirement| {
                let pointer = format!("/{}", requirement.field.replace('.', "/"));
                requirement.matches(&object::text(object, &pointer))
            })
    }

    fn event(&self, change: &Logged) -> Option<RawEvent> {
        if change.resource != self.resource {
            return None;
        }
        let was = change
            .old
            .as_ref()
            .is_some_and(|object| self.selects(object));
        let is = change
            .new
            .as_ref()
            .is_some_and(|object| self.selects(object));
        let kind = match (was, is) {
            (false, true) => WatchKind::Added,
            (true, true) => WatchKind::Modified,
            (true, false) => WatchKind::Deleted,
            (false, false) => return None,
        };
        let object = change.new.as_ref().or(change.old.as_ref())?;
        Some(RawEvent {
            kind,
            object: encode(object),
            resource_version: change.revision,
        })
    }
}

fn parse(body: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(body)
        .map_err(|cause| error(400, "BadRequest", &format!("cannot decode: {cause}")))
}

fn encode(object: &Value) -> Bytes {
    Bytes::from(object.to_string())
}
