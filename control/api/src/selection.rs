//! Which objects of a collection a list or watch is about.

use serde_json::Value;
use swiftlet_client::api::ApiError;
use swiftlet_proto::selector::{FieldRequirement, LabelSelector};

use crate::encode::{self, Head};
use crate::error;
use crate::options::Options;
use crate::registry::Resource;
use crate::route::Target;

/// A checked selection. It decodes an object as little as it can: not at all when everything is
/// selected, the metadata alone for names and labels.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    resource: &'static Resource,
    labels: LabelSelector,
    /// Requirements on `metadata.name` and `metadata.namespace`.
    identity: Vec<FieldRequirement>,
    /// Requirements on other fields.
    fields: Vec<FieldRequirement>,
}

impl Selection {
    /// Checks the selectors against what the resource supports.
    pub(crate) fn new(target: &Target, options: &Options) -> Result<Self, ApiError> {
        let (identity, fields) = options
            .fields
            .iter()
            .cloned()
            .partition(|r| matches!(r.field.as_str(), "metadata.name" | "metadata.namespace"));
        let selection = Self {
            resource: target.resource,
            labels: options.labels.clone(),
            identity,
            fields,
        };
        for requirement in &selection.fields {
            if target
                .resource
                .strategy
                .field(&Value::Null, &requirement.field)
                .is_none()
            {
                return Err(error::bad_request(format!(
                    "field label not supported: {}",
                    requirement.field
                )));
            }
        }
        Ok(selection)
    }

    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.identity.is_empty() && self.fields.is_empty()
    }

    /// Whether an encoded object is selected.
    pub(crate) fn matches(&self, object: &[u8]) -> bool {
        if self.is_everything() {
            return true;
        }
        if !self.matches_head(object) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let object = encode::decode_bytes(object);
        self.fields.iter().all(|requirement| {
            let actual = self.resource.strategy.field(&object, &requirement.field);
            requirement.matches(actual.as_deref().unwrap_or_default())
        })
    }

    fn matches_head(&self, object: &[u8]) -> bool {
        if self.labels.is_everything() && self.identity.is_empty() {
            return true;
        }
        let head: Head = serde_json::from_slice(object).unwrap_or_default();
        let identity = self.identity.iter().all(|requirement| {
            let actual = match requirement.field.as_str() {
                "metadata.name" => &head.metadata.name,
                _ => &head.metadata.namespace,
            };
            requirement.matches(actual)
        });
        identity && self.labels.matches(&head.metadata.labels)
    }
}
