//! The verbs, one file each. Every function here is called after authorization, from the HTTP side
//! and from the local door alike.

pub(crate) mod binding;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod eviction;
pub(crate) mod finalize;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod modify;
pub(crate) mod patch;
pub(crate) mod pod_part;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod token;
pub(crate) mod update;
pub(crate) mod watch;

use bytes::Bytes;
use serde_json::Value;

use crate::encode;

/// The outcome of a write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// The encoded object as it is now.
    pub(crate) object: Bytes,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Written {
    /// What a dry run would have written.
    pub(crate) fn dry(object: &Value, warnings: Vec<String>) -> Self {
        Self {
            object: encode::encode(object),
            warnings,
        }
    }
}

/// The current time, as metadata writes it.
pub(crate) fn now() -> String {
    time_text(jiff::Timestamp::now())
}

/// A time, as metadata writes it: whole seconds, UTC.
pub(crate) fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
