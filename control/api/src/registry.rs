//! What a resource is: its names, and the strategy that knows its fields.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;
use serde_json::Value;
use swiftlet_client::api::ResourceName;

/// A served resource.
pub struct Resource {
    /// Group, version and plural name.
    pub name: ResourceName,
    /// `Pod`.
    pub kind: &'static str,
    /// `PodList`.
    pub list_kind: &'static str,
    /// `pod`.
    pub singular: &'static str,
    /// `po`.
    pub short_names: &'static [&'static str],
    /// `all`.
    pub categories: &'static [&'static str],
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// `status`, `scale`, `binding`, `finalize`.
    pub subresources: &'static [&'static str],
    /// What is particular to it.
    pub strategy: &'static dyn Strategy,
}

impl Resource {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.name.group.is_empty() {
            self.name.version.into()
        } else {
            format!("{}/{}", self.name.group, self.name.version)
        }
    }

    /// `pods` or `deployments.apps`, as messages name it.
    pub fn qualified(&self) -> String {
        if self.name.group.is_empty() {
            self.name.plural.into()
        } else {
            format!("{}.{}", self.name.plural, self.name.group)
        }
    }

    /// `Pod` or `Deployment.apps`, as messages name it.
    pub fn qualified_kind(&self) -> String {
        if self.name.group.is_empty() {
            self.kind.into()
        } else {
            format!("{}.{}", self.kind, self.name.group)
        }
    }

    /// Whether a subresource is served.
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.contains(&name)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.qualified())
    }
}

/// What is particular to one resource. Objects are complete: `apiVersion`, `kind` and `metadata`
/// are there, and are not a strategy's business unless it says so.
pub trait Strategy: Sync {
    /// Decodes with the typed struct, to find wrong types. The answer is the object as the type
    /// encodes it again: what is missing from it was not a known field.
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError>;

    /// Sets what the user left out.
    fn apply_defaults(&self, object: &mut Value);

    /// For a new object, after defaulting: clears the status, sets `metadata.generation` 1 where
    /// the kind has one, `status.phase` Pending for pods.
    fn prepare_for_create(&self, object: &mut Value);

    /// For an update of the object: keeps the old status and raises the generation when the
    /// specification changed.
    fn prepare_for_update(&self, new: &mut Value, old: &Value);

    /// For an update of the status: keeps everything but the status from the old object.
    /// The caller keeps metadata itself.
    fn prepare_for_status_update(&self, new: &mut Value, old: &Value);

    /// Rules for a whole object, metadata included.
    fn validate(&self, object: &Value) -> Vec<FieldError>;

    /// Rules for a new object alone; runs after `validate`.
    fn validate_create(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Rules for a change; runs after `validate` of the new object.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError>;

    /// The value of a field selector's label, beyond `metadata.name` and `metadata.namespace`.
    /// `None`: this label is not supported.
    fn field(&self, object: &Value, path: &str) -> Option<String>;
}

/// Why an object cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// In Kubernetes' words: `json: cannot unmarshal string into Go struct field
    /// PodSpec.spec.containers of type []v1.Container`.
    pub message: String,
}

/// The sort of a field's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed.
    Invalid,
    /// A value is not one of the allowed ones.
    NotSupported,
    /// A value may not be set, or not changed.
    Forbidden,
    /// A value occurs twice.
    Duplicate,
    /// A value names something that does not exist.
    NotFound,
    /// A value is longer than allowed.
    TooLong,
    /// A list is longer than allowed.
    TooMany,
    /// A value has the wrong type.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The words at the start of the message.
    pub fn words(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::Duplicate => "Duplicate value",
            Self::NotFound => "Not found",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// `causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotFound => "FieldValueNotFound",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Its sort.
    pub kind: FieldErrorKind,
    /// `spec.containers[0].image`.
    pub field: String,
    /// The value that is wrong; `Null` where the message shows none.
    pub value: Value,
    /// The explanation; may be empty.
    pub detail: String,
}

impl FieldError {
    /// An error with a value.
    pub fn new(
        kind: FieldErrorKind,
        field: impl Into<String>,
        value: Value,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            field: field.into(),
            value,
            detail: detail.into(),
        }
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, field, Value::Null, detail)
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Invalid, field, value, detail)
    }

    /// A value that may not be set.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, field, Value::Null, detail)
    }

    /// Kind, value and detail without the field's name: `Invalid value: "A": must be lower case`.
    pub fn body(&self) -> String {
        let mut body = String::from(self.kind.words());
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
        );
        if shows_value {
            body.push_str(": ");
            body.push_str(&shown(&self.value));
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }

    /// As one of a Status' causes.
    pub fn cause(&self) -> StatusCause {
        StatusCause {
            field: Some(self.field.clone()),
            message: Some(self.body()),
            reason: Some(self.kind.reason().into()),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

/// Strings quoted, the rest as JSON; nothing as `null`.
fn shown(value: &Value) -> String {
    value.to_string()
}
