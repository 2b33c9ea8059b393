//! DELETE: at once, after a grace period, or when the last finalizer is gone.
//!
//! ```text
//!            grace > 0 (pods)                 grace 0, or the node agent's own delete
//!  live ───────────────────────▶ terminating ──────────────────────────────▶ gone
//!    └── finalizers ───────────▶ terminating ──────── last finalizer ──────▶ gone
//!    └── neither ──────────────────────────────────────────────────────────▶ gone
//! ```

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, DeleteParameters, ResourceName, resources};
use swiftlet_store::{Entry, Expect};

use super::modify;
use crate::api::{ApiServer, Refused};
use crate::encode::{self, metadata_mut, metadata_str};
use crate::error;
use crate::route::Target;

/// Times that a deletion is decided again after somebody else wrote first.
const ATTEMPTS_MAX: usize = 64;
/// `terminationGracePeriodSeconds` of a pod that says nothing.
const GRACE_PERIOD_DEFAULT_S: i64 = 30;
/// Namespaces that stay.
const NAMESPACES_KEPT: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The outcome of a deletion.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    /// The object's last state, or its state while it waits.
    pub(crate) object: Bytes,
    /// Whether the object is gone.
    pub(crate) gone: bool,
    /// `metadata.uid`.
    pub(crate) uid: String,
}

/// What one look at an object decides.
enum Decision {
    /// Nothing is left to wait for.
    Remove(Value),
    /// It waits in this state.
    Keep(Value),
    /// It waits already.
    Wait,
}

/// Deletes an object, or begins to.
pub(crate) async fn delete(
    api: &ApiServer,
    target: &Target,
    parameters: &DeleteParameters,
    dry_run: bool,
) -> Result<Deleted, ApiError> {
    if target.resource.name == resources::NAMESPACES
        && NAMESPACES_KEPT.contains(&target.name.as_str())
    {
        let why = "this namespace may not be deleted";
        return Err(error::forbidden(target.resource, &target.name, why));
    }
    let mut entry = api.find(target)?;
    for _ in 0..ATTEMPTS_MAX {
        let current = encode::decode(&entry);
        check_preconditions(target, parameters, &current)?;
        let uid = metadata_str(&current, "uid").to_string();
        let decision = decide(target, &current, parameters, Timestamp::now());
        if dry_run {
            return Ok(Deleted {
                object: entry.value,
                gone: true,
                uid,
            });
        }
        match carry_out(api, target, decision, &entry).await {
            Ok((object, gone)) => return Ok(Deleted { object, gone, uid }),
            Err(Refused::Error(error)) => return Err(error),
            Err(Refused::Changed(None)) => {
                return Err(error::not_found(target.resource, &target.name));
            }
            Err(Refused::Changed(Some(newer))) => entry = newer,
        }
    }
    Err(error::modified(target.resource, &target.name))
}

async fn carry_out(
    api: &ApiServer,
    target: &Target,
    decision: Decision,
    entry: &Entry,
) -> Result<(Bytes, bool), Refused> {
    let expect = Expect::At(entry.revision);
    match decision {
        Decision::Remove(last) => {
            let last = api.remove(target, encode::template(&last), expect).await?;
            Ok((last, true))
        }
        Decision::Keep(object) => {
            let object = api.put(target, encode::template(&object), expect).await?;
            Ok((object, false))
        }
        Decision::Wait => Ok((entry.value.clone(), false)),
    }
}

fn check_preconditions(
    target: &Target,
    parameters: &DeleteParameters,
    current: &Value,
) -> Result<(), ApiError> {
    modify::check_uid(
        target,
        parameters.uid.as_deref().unwrap_or_default(),
        current,
    )?;
    let actual = metadata_str(current, "resourceVersion");
    match parameters.resource_version.as_deref() {
        Some(wanted) if !wanted.is_empty() && wanted != actual => {
            let why = format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion \
                 in object meta: {actual}"
            );
            Err(error::conflict(target.resource, &target.name, &why))
        }
        _ => Ok(()),
    }
}

/// Pure: what a deletion means for an object in this state.
fn decide(
    target: &Target,
    current: &Value,
    parameters: &DeleteParameters,
    now: Timestamp,
) -> Decision {
    let mut object = current.clone();
    let mut changed = set_propagation(&mut object, propagation(target, parameters));
    let terminating = current["metadata"]["deletionTimestamp"].is_string();
    let grace_s = grace_period_s(target, current, parameters);
    let remaining_s = if terminating {
        let old_s = current["metadata"]["deletionGracePeriodSeconds"]
            .as_i64()
            .unwrap_or_default();
        let asked_s = parameters
            .grace_period_seconds
            .map_or(old_s, |_| grace_s)
            .min(old_s);
        if asked_s < old_s {
            let start = deletion_start(current, old_s).unwrap_or(now);
            mark(&mut object, start, asked_s);
            changed = true;
        }
        asked_s
    } else {
        mark(&mut object, now, grace_s);
        if target.resource.name == resources::NAMESPACES {
            object["status"]["phase"] = "Terminating".into();
        }
        changed = true;
        grace_s
    };
    if remaining_s == 0 && !modify::has_finalizers(&object) {
        return Decision::Remove(object);
    }
    if changed {
        Decision::Keep(object)
    } else {
        Decision::Wait
    }
}

/// Seconds that an object gets for its end. Only pods that run somewhere get any.
fn grace_period_s(target: &Target, current: &Value, parameters: &DeleteParameters) -> i64 {
    if target.resource.name != resources::PODS {
        return 0;
    }
    let unscheduled = current["spec"]["nodeName"]
        .as_str()
        .unwrap_or_default()
        .is_empty();
    let over = matches!(
        current["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    );
    if unscheduled || over {
        return 0;
    }
    let own = current["spec"]["terminationGracePeriodSeconds"].as_i64();
    let grace_s = parameters
        .grace_period_seconds
        .or(own)
        .unwrap_or(GRACE_PERIOD_DEFAULT_S);
    // A negative period means "as soon as possible, but not by force".
    if grace_s < 0 { 1 } else { grace_s }
}

fn deletion_start(current: &Value, grace_s: i64) -> Option<Timestamp> {
    let end: Timestamp = current["metadata"]["deletionTimestamp"]
        .as_str()?
        .parse()
        .ok()?;
    end.checked_sub(SignedDuration::from_secs(grace_s)).ok()
}

/// Says in an object that it ends `grace_s` after `start`.
fn mark(object: &mut Value, start: Timestamp, grace_s: i64) {
    let end = start
        .checked_add(SignedDuration::from_secs(grace_s))
        .unwrap_or(start);
    let metadata = metadata_mut(object);
    let first = !metadata.contains_key("deletionTimestamp");
    metadata.insert("deletionTimestamp".into(), super::time_text(end).into());
    metadata.insert("deletionGracePeriodSeconds".into(), grace_s.into());
    let generation = metadata.get("generation").and_then(Value::as_i64);
    if let Some(generation) = generation.filter(|generation| first && *generation > 0) {
        metadata.insert("generation".into(), (generation + 1).into());
    }
}

/// What the deletion does with dependents. Finalizers for that are only set where the garbage
/// collector takes them away again; everything else goes in the background.
fn propagation<'a>(target: &Target, parameters: &'a DeleteParameters) -> Option<&'a str> {
    const COLLECTED: [ResourceName; 3] = [
        resources::PODS,
        resources::REPLICA_SETS,
        resources::DEPLOYMENTS,
    ];
    let policy = parameters.propagation_policy.as_deref()?;
    let is_collected = COLLECTED.contains(&target.resource.name);
    Some(if is_collected { policy } else { "Background" })
}

/// Sets the finalizers that tell the garbage collector what to do with dependents. Answers
/// whether anything changed.
fn set_propagation(object: &mut Value, policy: Option<&str>) -> bool {
    let wanted = match policy {
        Some("Orphan") => Some("orphan"),
        Some("Foreground") => Some("foregroundDeletion"),
        Some(_) => None,
        // Without a policy, finalizers that somebody set already decide.
        None => return false,
    };
    let metadata = metadata_mut(object);
    let old = metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut new: Vec<Value> = old
        .iter()
        .filter(|one| **one != "orphan" && **one != "foregroundDeletion")
        .cloned()
        .collect();
    new.extend(wanted.map(|finalizer| json!(finalizer)));
    let changed = new != old;
    if new.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".into(), new.into());
    }
    changed
}
