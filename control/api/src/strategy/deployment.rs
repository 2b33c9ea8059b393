//! `apps/v1/deployments`.

use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;

use super::fields::{default_to, object_in, part};
use super::{generation, replicaset};
use crate::registry::{DecodeError, FieldError, Strategy};
use crate::validate;

/// ReplicaSets of old revisions that are kept.
const REVISION_HISTORY_LIMIT: i64 = 10;
/// How long a deployment may stand still before it is said to have failed.
const PROGRESS_DEADLINE_S: i64 = 600;
/// Default of `maxSurge` and `maxUnavailable`.
const ROLLING_SHARE: &str = "25%";

/// Deployments.
pub(super) struct DeploymentStrategy;

impl Strategy for DeploymentStrategy {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        super::check_types::<Deployment>(object)
    }

    fn apply_defaults(&self, object: &mut Value) {
        let Some(spec) = part(object, "spec") else {
            return;
        };
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", REVISION_HISTORY_LIMIT);
        default_to(spec, "progressDeadlineSeconds", PROGRESS_DEADLINE_S);
        replicaset::default_template(spec);
        let Some(strategy) = object_in(spec, "strategy") else {
            return;
        };
        default_to(strategy, "type", "RollingUpdate");
        if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
            && let Some(rolling) = object_in(strategy, "rollingUpdate")
        {
            default_to(rolling, "maxUnavailable", ROLLING_SHARE);
            default_to(rolling, "maxSurge", ROLLING_SHARE);
        }
    }

    fn prepare_for_create(&self, object: &mut Value) {
        generation::clear_status(object);
        generation::first(object);
    }

    /// A changed annotation is a new generation as well: the controller copies annotations.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        generation::keep_status(new, old);
        let annotations = |object: &Value| object.pointer("/metadata/annotations").cloned();
        let changed = generation::differs(new, old, "spec") || annotations(new) != annotations(old);
        generation::next(new, old, changed);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        generation::keep_all_but_status(new, old);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate::deployment(object)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        validate::workload_update(new, old)
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
