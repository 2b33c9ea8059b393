//! Read, change, compare and swap: what update, patch, status, scale, binding and finalize share.

use serde_json::{Map, Value};
use swiftlet_client::api::ApiError;
use swiftlet_store::{Entry, Expect};

use super::Written;
use super::pod_part::PodPart;
use crate::api::{ApiServer, Refused};
use crate::encode::{self, metadata_mut, metadata_str};
use crate::error;
use crate::options::WriteOptions;
use crate::registry::FieldError;
use crate::route::Target;
use crate::service_ip;

/// Times that a change is computed again after somebody else wrote first.
const ATTEMPTS_MAX: usize = 64;

/// What a change makes of the current object.
pub(crate) struct Proposal {
    /// The new object.
    pub(crate) object: Value,
    /// The revision on which the client bases it; a conflict with it is not retried.
    pub(crate) based_on: Option<String>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

/// Metadata that only the server writes.
const SERVER_METADATA: [&str; 7] = [
    "namespace",
    "name",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
];

/// Changes an object by compare-and-swap. `change` is called again when somebody else wrote
/// first, unless the client said on what it bases its change.
pub(crate) async fn modify<F>(
    api: &ApiServer,
    target: &Target,
    options: WriteOptions,
    mut change: F,
) -> Result<Written, ApiError>
where
    F: FnMut(&Value) -> Result<Proposal, ApiError> + Send,
{
    let resource = target.resource;
    let mut allocation = None;
    let mut entry = api.find(target)?;
    for _ in 0..ATTEMPTS_MAX {
        let current = encode::decode(&entry);
        let Proposal {
            mut object,
            based_on,
            warnings,
        } = change(&current)?;
        if service_ip::is_concerned(target) && !service_ip::is_settled(&mut object, &current) {
            // Held to the store's answer, and through further attempts.
            if allocation.is_none() {
                allocation = api.allocation(target).await;
            }
            service_ip::allocate(api, target, &mut object, Some(&current))?;
        }
        if let Some(based_on) = based_on.as_deref()
            && based_on != entry.revision.0.to_string()
        {
            return Err(error::modified(resource, &target.name));
        }
        if same(&object, &current) {
            return Ok(Written {
                object: entry.value,
                warnings,
            });
        }
        if options.dry_run {
            return Ok(Written::dry(&object, warnings));
        }
        match store(api, target, &object, &current, &entry).await {
            Ok(object) => return Ok(Written { object, warnings }),
            Err(Refused::Error(error)) => return Err(error),
            Err(Refused::Changed(_)) if based_on.is_some() => {
                return Err(error::modified(resource, &target.name));
            }
            Err(Refused::Changed(Some(newer))) => entry = newer,
            Err(Refused::Changed(None)) => return Err(error::not_found(resource, &target.name)),
        }
    }
    Err(error::modified(resource, &target.name))
}

/// Stores a new state; an object that waited only for its finalizers is removed.
async fn store(
    api: &ApiServer,
    target: &Target,
    object: &Value,
    current: &Value,
    entry: &Entry,
) -> Result<bytes::Bytes, Refused> {
    let template = encode::template(object);
    let expect = Expect::At(entry.revision);
    if is_finished(object, current) {
        api.remove(target, template, expect).await
    } else {
        api.put(target, template, expect).await
    }
}

/// Whether nothing but finalizers kept a deleted object, and they are gone.
fn is_finished(object: &Value, current: &Value) -> bool {
    let metadata = &object["metadata"];
    let deleted = metadata["deletionTimestamp"].is_string();
    let graceful = metadata["deletionGracePeriodSeconds"]
        .as_i64()
        .unwrap_or_default()
        > 0;
    let had = has_finalizers(current);
    deleted && !graceful && had && !has_finalizers(object)
}

/// Whether something must still happen before an object may go.
pub(crate) fn has_finalizers(object: &Value) -> bool {
    let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    some(&object["metadata"]["finalizers"])
        || (object["kind"] == "Namespace" && some(&object["spec"]["finalizers"]))
}

/// Equal but for the revision.
fn same(new: &Value, current: &Value) -> bool {
    let (Some(new), Some(current)) = (new.as_object(), current.as_object()) else {
        return new == current;
    };
    new.len() == current.len()
        && new
            .iter()
            .all(|(key, value)| match (key.as_str(), current.get(key)) {
                ("metadata", Some(old)) => same_metadata(value, old),
                (_, old) => old == Some(value),
            })
}

fn same_metadata(new: &Value, old: &Value) -> bool {
    let fields = |value: &Value| -> Vec<(String, Value)> {
        let members = value.as_object().cloned().unwrap_or_default();
        members
            .into_iter()
            .filter(|(key, _)| key != "resourceVersion")
            .collect()
    };
    fields(new) == fields(old)
}

/// Checks a client's new version of an object and completes it from the current one.
pub(crate) fn complete(
    target: &Target,
    mut new: Value,
    current: &Value,
) -> Result<Proposal, ApiError> {
    check_identity(target, &mut new, current)?;
    let based_on = metadata_str(&new, "resourceVersion").to_string();
    let based_on = Some(based_on).filter(|text| !text.is_empty() && text != "0");
    keep_server_metadata(&mut new, current);
    let strategy = target.resource.strategy;
    if target.subresource == "status" {
        let annotations = new["metadata"].get("annotations").cloned();
        strategy.prepare_for_status_update(&mut new, current);
        new["metadata"] = current["metadata"].clone();
        if let Some(annotations) = annotations {
            metadata_mut(&mut new).insert("annotations".into(), annotations);
        }
        return Ok(Proposal {
            object: new,
            based_on,
            warnings: Vec::new(),
        });
    }
    if let Some(part) = PodPart::of(target.subresource) {
        return part.complete(target, &new, current, based_on);
    }
    strategy.apply_defaults(&mut new);
    strategy.prepare_for_update(&mut new, current);
    let mut errors = strategy.validate(&new);
    errors.extend(strategy.validate_update(&new, current));
    errors.extend(new_finalizers(&new, current));
    if errors.is_empty() {
        Ok(Proposal {
            object: new,
            based_on,
            warnings: Vec::new(),
        })
    } else {
        Err(error::invalid(target.resource, &target.name, &errors))
    }
}

fn check_identity(target: &Target, new: &mut Value, current: &Value) -> Result<(), ApiError> {
    let metadata = metadata_mut(new);
    check_namespace(target, metadata)?;
    let name = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if name.is_empty() {
        metadata.insert("name".into(), target.name.as_str().into());
    } else if name != target.name {
        return Err(error::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    check_uid(target, metadata_str(new, "uid"), current)
}

/// Refuses when a precondition names another object of the same name.
pub(crate) fn check_uid(target: &Target, uid: &str, current: &Value) -> Result<(), ApiError> {
    let actual = metadata_str(current, "uid");
    if uid.is_empty() || uid == actual {
        return Ok(());
    }
    let why =
        format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}");
    Err(error::conflict(target.resource, &target.name, &why))
}

/// Refuses an object of another namespace than the URL's.
pub(crate) fn check_namespace(
    target: &Target,
    metadata: &Map<String, Value>,
) -> Result<(), ApiError> {
    let namespace = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace.is_empty() || namespace == target.namespace {
        return Ok(());
    }
    Err(error::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

fn keep_server_metadata(new: &mut Value, current: &Value) {
    let metadata = metadata_mut(new);
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    for field in SERVER_METADATA {
        match current["metadata"].get(field) {
            Some(value) => metadata.insert(field.into(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

/// An object that is being deleted takes no new finalizers.
fn new_finalizers(new: &Value, current: &Value) -> Option<FieldError> {
    if !current["metadata"]["deletionTimestamp"].is_string() {
        return None;
    }
    let old = current["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let added: Vec<String> = new["metadata"]["finalizers"]
        .as_array()?
        .iter()
        .filter(|finalizer| !old.contains(finalizer))
        .map(ToString::to_string)
        .collect();
    if added.is_empty() {
        return None;
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers \
         []string{{{}}}",
        added.join(", ")
    );
    Some(FieldError::forbidden("metadata.finalizers", detail))
}
