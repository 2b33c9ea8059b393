//! Refusals in Kubernetes' words: every `metav1.Status` that the server answers is built here.

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use swiftlet_client::api::ApiError;

use crate::registry::{FieldError, Resource};

/// `details` about one object of a resource.
fn details(resource: &Resource, name: &str) -> StatusDetails {
    StatusDetails {
        group: Some(resource.name.group)
            .filter(|group| !group.is_empty())
            .map(Into::into),
        kind: Some(resource.name.plural.into()),
        name: Some(name).filter(|name| !name.is_empty()).map(Into::into),
        ..StatusDetails::default()
    }
}

/// A failure with a code, a reason and a message.
pub(crate) fn failure(code: StatusCode, reason: &str, message: impl Into<String>) -> ApiError {
    ApiError(Box::new(Status {
        status: Some("Failure".into()),
        code: Some(i32::from(code.as_u16())),
        reason: Some(reason.into()).filter(|reason: &String| !reason.is_empty()),
        message: Some(message.into()),
        ..Status::default()
    }))
}

fn detailed(mut error: ApiError, details: StatusDetails) -> ApiError {
    error.0.details = Some(details);
    error
}

/// 400.
pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
    failure(StatusCode::BAD_REQUEST, "BadRequest", message)
}

/// 401.
pub(crate) fn unauthorized() -> ApiError {
    failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
}

/// 403 for an object or, without a name, for a whole resource.
pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> ApiError {
    let qualified = resource.qualified();
    let message = if name.is_empty() {
        format!("{qualified} is forbidden: {why}")
    } else {
        format!("{qualified} \"{name}\" is forbidden: {why}")
    };
    let error = failure(StatusCode::FORBIDDEN, "Forbidden", message);
    detailed(error, details(resource, name))
}

/// 403 for a path that is no resource.
pub(crate) fn forbidden_path(message: impl Into<String>) -> ApiError {
    detailed(
        failure(StatusCode::FORBIDDEN, "Forbidden", message),
        StatusDetails::default(),
    )
}

/// 403: the namespace is being deleted.
pub(crate) fn namespace_terminating(resource: &Resource, name: &str, namespace: &str) -> ApiError {
    let mut error = forbidden(
        resource,
        name,
        &format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        ),
    );
    if let Some(details) = &mut error.0.details {
        details.causes = Some(vec![StatusCause {
            field: Some("metadata.namespace".into()),
            message: Some(format!("namespace {namespace} is being terminated")),
            reason: Some("NamespaceTerminating".into()),
        }]);
    }
    error
}

/// 404 for an object.
pub(crate) fn not_found(resource: &Resource, name: &str) -> ApiError {
    let message = format!("{} \"{name}\" not found", resource.qualified());
    detailed(
        failure(StatusCode::NOT_FOUND, "NotFound", message),
        details(resource, name),
    )
}

/// 404 for a path that is not served.
pub(crate) fn unknown_path() -> ApiError {
    detailed(
        failure(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        ),
        StatusDetails::default(),
    )
}

/// 405.
pub(crate) fn method_not_allowed() -> ApiError {
    detailed(
        failure(
            StatusCode::METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        StatusDetails::default(),
    )
}

/// 406.
pub(crate) fn not_acceptable(accepted: &str) -> ApiError {
    failure(
        StatusCode::NOT_ACCEPTABLE,
        "NotAcceptable",
        format!("only the following media types are accepted: {accepted}"),
    )
}

/// 409: the name is taken.
pub(crate) fn already_exists(resource: &Resource, name: &str) -> ApiError {
    let message = format!("{} \"{name}\" already exists", resource.qualified());
    detailed(
        failure(StatusCode::CONFLICT, "AlreadyExists", message),
        details(resource, name),
    )
}

/// 409 for a reason.
pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> ApiError {
    let qualified = resource.qualified();
    let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
    detailed(
        failure(StatusCode::CONFLICT, "Conflict", message),
        details(resource, name),
    )
}

/// 409 for an object that is named by its kind.
pub(crate) fn conflict_of(kind: &str, name: &str, why: &str) -> ApiError {
    let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
    detailed(
        failure(StatusCode::CONFLICT, "Conflict", message),
        StatusDetails {
            kind: Some(kind.into()),
            name: Some(name.into()),
            ..StatusDetails::default()
        },
    )
}

/// 409: somebody else wrote first.
pub(crate) fn modified(resource: &Resource, name: &str) -> ApiError {
    conflict(
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// 410: the revision is no longer kept.
pub(crate) fn expired(message: impl Into<String>) -> ApiError {
    failure(StatusCode::GONE, "Expired", message)
}

/// 410 for a watch.
pub(crate) fn too_old(requested: u64, oldest: u64) -> ApiError {
    expired(format!("too old resource version: {requested} ({oldest})"))
}

/// 413.
pub(crate) fn request_too_large(limit_bytes: usize) -> ApiError {
    failure(
        StatusCode::PAYLOAD_TOO_LARGE,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {limit_bytes}"),
    )
}

/// 415.
pub(crate) fn unsupported_media_type(message: impl Into<String>) -> ApiError {
    failure(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UnsupportedMediaType",
        message,
    )
}

/// 422 with one cause for each error.
pub(crate) fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> ApiError {
    invalid_kind(resource.name.group, resource.kind, name, errors)
}

/// 422 for a kind that is no resource of its own.
pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> ApiError {
    let qualified = if group.is_empty() {
        kind.to_string()
    } else {
        format!("{kind}.{group}")
    };
    let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let list = if let [one] = list.as_slice() {
        one.clone()
    } else {
        format!("[{}]", list.join(", "))
    };
    let message = format!("{qualified} \"{name}\" is invalid: {list}");
    let causes = errors.iter().map(FieldError::cause).collect();
    detailed(
        failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message),
        StatusDetails {
            group: Some(group.to_string()).filter(|group| !group.is_empty()),
            kind: Some(kind.into()),
            name: Some(name.to_string()).filter(|name| !name.is_empty()),
            causes: Some(causes),
            ..StatusDetails::default()
        },
    )
}

/// 422 without a field, for what a patch cannot do.
pub(crate) fn unprocessable(resource: &Resource, name: &str, why: &str) -> ApiError {
    let error = failure(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", why);
    detailed(error, details(resource, name))
}

/// 429.
pub(crate) fn too_many_requests(message: impl Into<String>) -> ApiError {
    detailed(
        failure(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message),
        StatusDetails {
            retry_after_seconds: Some(1),
            ..StatusDetails::default()
        },
    )
}

/// 500.
pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
    let message = format!("Internal error occurred: {message}");
    failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
}

/// 503.
pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
    failure(
        StatusCode::SERVICE_UNAVAILABLE,
        "ServiceUnavailable",
        message,
    )
}

/// 504: the client has seen a revision that this server does not have yet.
pub(crate) fn too_large_revision(requested: u64, current: u64) -> ApiError {
    detailed(
        failure(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout",
            format!("Timeout: Too large resource version: {requested}, current: {current}"),
        ),
        StatusDetails {
            causes: Some(vec![StatusCause {
                message: Some("Too large resource version".into()),
                reason: Some("ResourceVersionTooLarge".into()),
                field: None,
            }]),
            retry_after_seconds: Some(1),
            ..StatusDetails::default()
        },
    )
}

/// The Status of a deletion that is complete.
pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Status {
    Status {
        status: Some("Success".into()),
        details: Some(StatusDetails {
            uid: Some(uid.into()).filter(|uid: &String| !uid.is_empty()),
            ..details(resource, name)
        }),
        ..Status::default()
    }
}
