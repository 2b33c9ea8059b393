//! Other objects that an admission depends on.

use serde::de::DeserializeOwned;

use super::{Admission, Wanted};
use crate::{encode, route};

impl Admission<'_> {
    /// The parts of an object that `T` has; `None` if there is no such object.
    pub(super) fn find<T: DeserializeOwned>(self, wanted: Wanted<'_>) -> Option<T> {
        let (resource, namespace, name) = wanted;
        let resource = route::resource(resource)?;
        let snapshot = self.api.snapshot();
        let entry = snapshot.get(&encode::path(resource, namespace, name))?;
        serde_json::from_slice(&entry.value).ok()
    }

    /// The parts of the objects of a cluster-wide resource whose stored text contains `mark`, which
    /// has no blanks between its members. The others are not decoded.
    pub(super) fn all_with<T: DeserializeOwned>(
        self,
        resource: &swiftlet_client::api::ResourceName,
        mark: &str,
    ) -> Vec<T> {
        let Some(resource) = route::resource(resource) else {
            return Vec::new();
        };
        let snapshot = self.api.snapshot();
        snapshot
            .range(&encode::prefix(resource, ""))
            .filter(|entry| str::from_utf8(&entry.value).is_ok_and(|text| text.contains(mark)))
            .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
            .collect()
    }
}

/// A name in `metadata`, and its annotations.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) annotations: std::collections::BTreeMap<String, String>,
    pub(super) creation_timestamp: String,
}
