//! POST: a new object.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};
use swiftlet_client::api::{ApiError, resources};
use swiftlet_store::Expect;

use super::Written;
use crate::admission;
use crate::api::{ApiServer, Refused};
use crate::decode;
use crate::encode::{self, metadata_mut, metadata_str};
use crate::error;
use crate::options::WriteOptions;
use crate::registry::FieldError;
use crate::route::{self, Target};
use crate::service_ip;

/// Names tried for one `generateName` (Kubernetes tries 8 as well).
const GENERATED_NAMES_MAX: usize = 8;
/// Characters added to `generateName`.
const SUFFIX_LEN: usize = 5;
/// Longest generated name before the suffix (a DNS label less the suffix).
const GENERATE_NAME_MAX: usize = 63 - SUFFIX_LEN;

/// Creates an object. `target.name` is empty or, for the local door, the expected name.
pub(crate) async fn create(
    api: &ApiServer,
    target: &Target,
    mut body: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    let received = SystemTime::now();
    let resource = target.resource;
    decode::expect_kind(&mut body, &resource.api_version(), resource.kind)?;
    let (object, warnings) = decode::checked(resource, &body, options.field_validation)?;
    let mut base = complete_metadata(target, object)?;
    let generated = metadata_str(&base, "name").is_empty();
    let mut attempts = 0;
    let _allocation = api.allocation(target).await;
    loop {
        attempts += 1;
        // Only a generated name is tried more than once.
        let object = named(if generated && attempts < GENERATED_NAMES_MAX {
            base.clone()
        } else {
            std::mem::take(&mut base)
        });
        let name = metadata_str(&object, "name").to_string();
        let target = Target {
            resource: target.resource,
            namespace: target.namespace.clone(),
            name: name.clone(),
            subresource: target.subresource,
        };
        check_namespace(api, &target)?;
        let object = prepared(api, &target, object).await?;
        if options.dry_run {
            return match api.find(&target) {
                Ok(_) => Err(error::already_exists(resource, &name)),
                Err(_) => Ok(Written::dry(&object, warnings)),
            };
        }
        match api
            .put(&target, encode::template(&object), Expect::Absent)
            .await
        {
            Ok(object) => {
                record_received(&target, received);
                return Ok(Written { object, warnings });
            }
            Err(Refused::Changed(_)) if generated && attempts < GENERATED_NAMES_MAX => (),
            Err(Refused::Changed(_)) => return Err(error::already_exists(resource, &name)),
            Err(Refused::Error(error)) => return Err(error),
        }
    }
}

/// The first moment of a pod's timeline: its body has been read.
fn record_received(target: &Target, at: SystemTime) {
    if target.resource.name == resources::PODS {
        let at_us = at
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros();
        tracing::debug!(
            target: "swiftlet::timeline",
            pod = format_args!("{}/{}", target.namespace, target.name),
            phase = "api_received",
            at_us = u64::try_from(at_us).unwrap_or_default(),
        );
    }
}

/// Sets what the server decides and checks what the client may not.
fn complete_metadata(target: &Target, mut object: Value) -> Result<Value, ApiError> {
    let metadata = metadata_mut(&mut object);
    let revision = text(metadata, "resourceVersion");
    if !revision.is_empty() && revision != "0" {
        return Err(error::bad_request(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    for field in [
        "resourceVersion",
        "selfLink",
        "managedFields",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
    ] {
        metadata.remove(field);
    }
    super::modify::check_namespace(target, metadata)?;
    if target.resource.namespaced {
        metadata.insert("namespace".into(), target.namespace.as_str().into());
    }
    let name = text(metadata, "name").to_string();
    if !target.name.is_empty() && name.is_empty() {
        metadata.insert("name".into(), target.name.as_str().into());
    } else if !target.name.is_empty() && target.name != name {
        return Err(error::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
    metadata.insert("creationTimestamp".into(), super::now().into());
    Ok(object)
}

/// Gives an object a generated name if it asked for one.
fn named(mut object: Value) -> Value {
    let metadata = metadata_mut(&mut object);
    let base = text(metadata, "generateName");
    if text(metadata, "name").is_empty() && !base.is_empty() {
        let base: String = base.chars().take(GENERATE_NAME_MAX).collect();
        metadata.insert("name".into(), format!("{base}{}", suffix()).into());
    }
    object
}

/// Random letters and digits that are not mistaken for each other and spell no words.
pub(crate) fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let random = uuid::Uuid::new_v4();
    random
        .as_bytes()
        .iter()
        .take(SUFFIX_LEN)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

async fn prepared(api: &ApiServer, target: &Target, mut object: Value) -> Result<Value, ApiError> {
    let strategy = target.resource.strategy;
    strategy.apply_defaults(&mut object);
    admission::admit(api, target, &mut object).await?;
    strategy.prepare_for_create(&mut object);
    let mut errors = strategy.validate(&object);
    errors.extend(strategy.validate_create(&object));
    if target.name.is_empty() && !errors.iter().any(|e| e.field == "metadata.name") {
        errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        ));
    }
    if !errors.is_empty() {
        return Err(error::invalid(target.resource, &target.name, &errors));
    }
    if service_ip::is_concerned(target) {
        service_ip::allocate(api, target, &mut object, None)?;
    }
    Ok(object)
}

/// New objects need a namespace that exists and stays.
fn check_namespace(api: &ApiServer, target: &Target) -> Result<(), ApiError> {
    if !target.resource.namespaced {
        return Ok(());
    }
    let namespaces = route::resource(&resources::NAMESPACES).ok_or_else(error::unknown_path)?;
    let path = encode::path(namespaces, "", &target.namespace);
    let snapshot = api.snapshot();
    let Some(entry) = snapshot.get(&path) else {
        return Err(error::not_found(namespaces, &target.namespace));
    };
    let phase: Phase = serde_json::from_slice(&entry.value).unwrap_or_default();
    if phase.status.phase == "Terminating" {
        let error = error::namespace_terminating(target.resource, &target.name, &target.namespace);
        return Err(error);
    }
    Ok(())
}

/// The part of a namespace that says whether it is being deleted.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Phase {
    status: PhaseStatus,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PhaseStatus {
    phase: String,
}

fn text<'m>(metadata: &'m Map<String, Value>, field: &str) -> &'m str {
    metadata
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
