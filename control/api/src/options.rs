//! Query strings: what a request may say beside its path and body.

use std::time::Duration;

use swiftlet_client::api::{ApiError, DeleteParameters};
use swiftlet_proto::selector::{FieldRequirement, LabelSelector, parse_field_selector};

use crate::error;

/// What a query string said. The default is what an empty one says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// `labelSelector`.
    pub(crate) labels: LabelSelector,
    /// `fieldSelector`.
    pub(crate) fields: Vec<FieldRequirement>,
    /// `resourceVersion`; `None` when unset.
    pub(crate) resource_version: Option<u64>,
    /// `resourceVersionMatch`.
    pub(crate) resource_version_match: Option<RevisionMatch>,
    /// `limit`; `None` for all.
    pub(crate) limit: Option<usize>,
    /// `continue`.
    pub(crate) continue_token: String,
    /// `timeoutSeconds`.
    pub(crate) timeout: Option<Duration>,
    /// `watch`.
    pub(crate) watch: bool,
    /// `allowWatchBookmarks`.
    pub(crate) bookmarks: bool,
    /// `sendInitialEvents`.
    pub(crate) initial_events: Option<bool>,
    /// Options of writes.
    pub(crate) write: WriteOptions,
    /// Options of deletions.
    pub(crate) delete: DeleteParameters,
    /// `pretty`.
    pub(crate) pretty: bool,
    /// `includeObject` of tables.
    pub(crate) include_object: String,
}

/// What a write may be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WriteOptions {
    /// `dryRun=All`: do everything but store.
    pub(crate) dry_run: bool,
    /// `fieldValidation`.
    pub(crate) field_validation: FieldValidation,
}

/// What happens to unknown fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Dropped.
    Ignore,
    /// Dropped with a warning.
    #[default]
    Warn,
    /// Refused.
    Strict,
}

/// How `resourceVersion` is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    /// At exactly this one.
    Exact,
    /// At this one or later.
    NotOlderThan,
}

/// Reads a query string.
pub(crate) fn parse(query: &str) -> Result<Options, ApiError> {
    let mut options = Options::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (form_decoded(key), form_decoded(value)) else {
            return Err(error::bad_request(format!(
                "invalid query parameter {pair:?}"
            )));
        };
        if !value.is_empty() {
            set(&mut options, &key, value)?;
        }
    }
    check_together(&options)?;
    Ok(options)
}

fn set(options: &mut Options, key: &str, value: String) -> Result<(), ApiError> {
    match key {
        "labelSelector" => {
            options.labels = LabelSelector::parse(&value).map_err(|e| unable(&value, "", &e))?;
        }
        "fieldSelector" => {
            options.fields = parse_field_selector(&value).map_err(|e| unable("", &value, &e))?;
        }
        "resourceVersion" => options.resource_version = Some(revision(&value)?),
        "resourceVersionMatch" => {
            options.resource_version_match = Some(match value.as_str() {
                "Exact" => RevisionMatch::Exact,
                "NotOlderThan" => RevisionMatch::NotOlderThan,
                _ => return Err(unsupported(key, &value, "\"Exact\", \"NotOlderThan\"")),
            });
        }
        "limit" => options.limit = Some(number(key, &value)?).filter(|limit| *limit > 0),
        "continue" => options.continue_token = value,
        "timeoutSeconds" => {
            options.timeout = Some(number(key, &value)?)
                .filter(|s| *s > 0)
                .map(Duration::from_secs);
        }
        "watch" => options.watch = boolean(&value),
        "allowWatchBookmarks" => options.bookmarks = boolean(&value),
        "sendInitialEvents" => options.initial_events = Some(boolean(&value)),
        "pretty" => options.pretty = boolean(&value),
        "includeObject" => options.include_object = value,
        "dryRun" if value == "All" => options.write.dry_run = true,
        "dryRun" => return Err(unsupported(key, &value, "\"All\"")),
        "fieldValidation" => {
            options.write.field_validation = match value.as_str() {
                "Ignore" => FieldValidation::Ignore,
                "Warn" => FieldValidation::Warn,
                "Strict" => FieldValidation::Strict,
                _ => return Err(unsupported(key, &value, "\"Ignore\", \"Strict\", \"Warn\"")),
            };
        }
        "gracePeriodSeconds" => options.delete.grace_period_seconds = Some(number(key, &value)?),
        "propagationPolicy" => options.delete.propagation_policy = Some(policy(value)?),
        // `fieldManager` is for managed fields, which are not kept; unknown parameters are
        // ignored as Kubernetes ignores them.
        _ => (),
    }
    Ok(())
}

fn check_together(options: &Options) -> Result<(), ApiError> {
    if options.initial_events.is_some()
        && options.watch
        && options.resource_version_match != Some(RevisionMatch::NotOlderThan)
    {
        return Err(error::bad_request(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan",
        ));
    }
    if !options.watch
        && options.resource_version_match.is_some()
        && options.resource_version.is_none()
    {
        return Err(error::bad_request(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
             resourceVersion is provided",
        ));
    }
    Ok(())
}

/// Checks a propagation policy.
pub(crate) fn policy(value: String) -> Result<String, ApiError> {
    match value.as_str() {
        "Orphan" | "Background" | "Foreground" => Ok(value),
        _ => Err(unsupported(
            "propagationPolicy",
            &value,
            "\"Background\", \"Foreground\", \"Orphan\"",
        )),
    }
}

/// Reads a resourceVersion.
pub(crate) fn revision(value: &str) -> Result<u64, ApiError> {
    value.parse().map_err(|_| {
        error::bad_request(format!(
            "Invalid value: {value:?}: resourceVersion is not a number"
        ))
    })
}

fn number<N: std::str::FromStr>(key: &str, value: &str) -> Result<N, ApiError> {
    value
        .parse()
        .map_err(|_| error::bad_request(format!("{key}: Invalid value: {value:?}: not a number")))
}

/// As Kubernetes reads it: anything but these is true.
fn boolean(value: &str) -> bool {
    !matches!(value, "false" | "0")
}

fn unsupported(key: &str, value: &str, known: &str) -> ApiError {
    error::bad_request(format!(
        "{key}: Unsupported value: {value:?}: supported values: {known}"
    ))
}

fn unable(label: &str, field: &str, why: &dyn std::fmt::Display) -> ApiError {
    tracing::debug!(label, field, "selector refused");
    error::bad_request(why.to_string())
}

/// Resolves `+` and `%41`.
fn form_decoded(text: &str) -> Option<String> {
    crate::route::percent_decoded(&text.replace('+', " "))
}
