//! Claims that name no storage class get the default one (Kubernetes:
//! `plugin/pkg/admission/storage/storageclass/setdefault`).

use serde::Deserialize;
use serde_json::Value;
use swiftlet_client::api::resources;

use super::Admission;
use super::lookup::Metadata;

/// Marks the default class.
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Class {
    metadata: Metadata,
}

/// Names the newest default class; of several of the same age the first by name.
pub(super) fn admit(admission: Admission<'_>, claim: &mut Value) {
    // An empty name is a wish: no class.
    if !claim["spec"]["storageClassName"].is_null() {
        return;
    }
    let is_default = |class: &Class| {
        let mark = class.metadata.annotations.get(IS_DEFAULT);
        mark.is_some_and(|text| text == "true")
    };
    let newest = admission
        .all_with::<Class>(&resources::STORAGE_CLASSES, IS_DEFAULT)
        .into_iter()
        .filter(is_default)
        .min_by(|a, b| {
            let (a, b) = (&a.metadata, &b.metadata);
            // Times of the API are texts that sort as the times do.
            b.creation_timestamp
                .cmp(&a.creation_timestamp)
                .then_with(|| a.name.cmp(&b.name))
        });
    if let Some(class) = newest {
        claim["spec"]["storageClassName"] = class.metadata.name.into();
    }
}
