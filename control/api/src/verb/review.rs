//! POST of reviews: questions about users, answered and not stored.

use jiff::Timestamp;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, ResourceName, UserInfo, resources};

use super::Written;
use crate::api::ApiServer;
use crate::authz;
use crate::decode;
use crate::encode;
use crate::error;
use crate::options::WriteOptions;
use crate::route::Target;
use crate::token::{self, ISSUER};

/// Answers a review.
pub(crate) fn create(
    api: &ApiServer,
    user: &UserInfo,
    target: &Target,
    mut body: Value,
    options: WriteOptions,
) -> Result<Written, ApiError> {
    let resource = target.resource;
    decode::expect_kind(&mut body, &resource.api_version(), resource.kind)?;
    let (mut review, warnings) = decode::checked(resource, &body, options.field_validation)?;
    let status = match resource.name {
        resources::SELF_SUBJECT_REVIEWS => {
            review["metadata"]["creationTimestamp"] = super::now().into();
            json!({ "userInfo": user_info(user) })
        }
        resources::SELF_SUBJECT_ACCESS_REVIEWS => access(user, &review)?,
        resources::SUBJECT_ACCESS_REVIEWS => access(&subject(&review)?, &review)?,
        resources::TOKEN_REVIEWS => token_review(api, &review),
        _ => return Err(error::method_not_allowed()),
    };
    review["status"] = status;
    Ok(Written {
        object: encode::encode(&review),
        warnings,
    })
}

/// `authentication.k8s.io/v1` `UserInfo`.
fn user_info(user: &UserInfo) -> Value {
    let mut info = json!({ "username": user.name, "groups": user.groups });
    if !user.uid.is_empty() {
        info["uid"] = user.uid.as_str().into();
    }
    if !user.extra.is_empty() {
        info["extra"] = json!(user.extra);
    }
    info
}

/// Whether the user may do what the review describes.
fn access(user: &UserInfo, review: &Value) -> Result<Value, ApiError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    let allowed = match (resource.is_object(), path.is_object()) {
        (true, false) => authz::Question {
            verb: &text(resource, "verb"),
            group: &text(resource, "group"),
            resource: &text(resource, "resource"),
            subresource: &text(resource, "subresource"),
            name: &text(resource, "name"),
        }
        .is_allowed(user),
        (false, true) => {
            let verb = text(path, "verb");
            authz::may_path(user, &verb, &text(path, "path"))
        }
        _ => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            return Err(error::bad_request(why));
        }
    };
    Ok(json!({ "allowed": allowed }))
}

/// The user that a review is about.
fn subject(review: &Value) -> Result<UserInfo, ApiError> {
    let spec = &review["spec"];
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let groups = spec["groups"].as_array();
    let groups: Vec<_> = groups.into_iter().flatten().filter_map(text).collect();
    let name = text(&spec["user"]).unwrap_or_default();
    if name.is_empty() && groups.is_empty() {
        return Err(error::bad_request(
            "at least one of user or group must be specified",
        ));
    }
    Ok(UserInfo {
        name,
        groups,
        ..UserInfo::default()
    })
}

/// Whose token it is.
fn token_review(api: &ApiServer, review: &Value) -> Value {
    let asked: Vec<&str> = review["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let audiences = if asked.is_empty() {
        vec![ISSUER]
    } else {
        asked
    };
    let text = review["spec"]["token"].as_str().unwrap_or_default();
    let Some(key) = api.signing_key() else {
        return json!({ "user": {} });
    };
    match token::user_of_token(key, &api.snapshot(), text, &audiences, Timestamp::now()) {
        Ok(bearer) => json!({
            "authenticated": true,
            "user": user_info(&bearer.user),
            "audiences": bearer.audiences,
        }),
        Err(why) => json!({ "user": {}, "error": format!("[{why}]") }),
    }
}

/// Whether a resource is a review, which is answered and not stored.
pub(crate) fn is_review(name: &ResourceName) -> bool {
    matches!(name.group, "authentication.k8s.io" | "authorization.k8s.io")
}
