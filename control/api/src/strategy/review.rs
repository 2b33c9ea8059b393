//! Reviews of `authentication.k8s.io/v1` and `authorization.k8s.io/v1`: answered, not stored.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SubjectAccessReview};
use serde_json::Value;
use swiftlet_client::api::resources;

use crate::registry::{DecodeError, FieldError, Resource, Strategy};

/// The reviews, in the order of discovery.
pub(super) const REVIEWS: &[Resource] = &[
    review(
        resources::SELF_SUBJECT_REVIEWS,
        "SelfSubjectReview",
        "selfsubjectreview",
        &Reviewed(super::check_types::<SelfSubjectReview>),
    ),
    review(
        resources::TOKEN_REVIEWS,
        "TokenReview",
        "tokenreview",
        &Reviewed(super::check_types::<TokenReview>),
    ),
    review(
        resources::SELF_SUBJECT_ACCESS_REVIEWS,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreview",
        &Reviewed(super::check_types::<SelfSubjectAccessReview>),
    ),
    review(
        resources::SUBJECT_ACCESS_REVIEWS,
        "SubjectAccessReview",
        "subjectaccessreview",
        &Reviewed(super::check_types::<SubjectAccessReview>),
    ),
];

const fn review(
    name: swiftlet_client::api::ResourceName,
    kind: &'static str,
    singular: &'static str,
    strategy: &'static dyn Strategy,
) -> Resource {
    Resource {
        name,
        kind,
        // There are no lists of them.
        list_kind: kind,
        singular,
        short_names: &[],
        categories: &[],
        namespaced: false,
        subresources: &[],
        strategy,
    }
}

/// A review's types; it has nothing else.
struct Reviewed(fn(&Value) -> Result<Value, DecodeError>);

impl Strategy for Reviewed {
    fn check_types(&self, object: &Value) -> Result<Value, DecodeError> {
        (self.0)(object)
    }

    fn apply_defaults(&self, _object: &mut Value) {}

    fn prepare_for_create(&self, _object: &mut Value) {}

    fn prepare_for_update(&self, _new: &mut Value, _old: &Value) {}

    fn prepare_for_status_update(&self, _new: &mut Value, _old: &Value) {}

    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn validate_update(&self, _new: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    fn field(&self, _object: &Value, _path: &str) -> Option<String> {
        None
    }
}
