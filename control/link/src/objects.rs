//! The few fields of an encoded object that the link needs, read without decoding the rest.

use std::borrow::Cow;

use serde::Deserialize;

/// The head of any object.
#[derive(Deserialize)]
pub(crate) struct Head<'a> {
    /// `metadata`.
    #[serde(borrow)]
    pub(crate) metadata: Metadata<'a>,
    /// `spec`, for pods.
    #[serde(borrow, default)]
    pub(crate) spec: Spec<'a>,
}

/// The part of `metadata` that names the object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata<'a> {
    /// `metadata.name`.
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    /// `metadata.namespace`.
    #[serde(borrow, default)]
    pub(crate) namespace: Cow<'a, str>,
    /// `metadata.uid`.
    #[serde(borrow, default)]
    pub(crate) uid: Cow<'a, str>,
    /// `metadata.generation`; 0 where there is none.
    #[serde(default)]
    pub(crate) generation: i64,
}

/// The part of a pod's `spec` that says where it runs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spec<'a> {
    /// `spec.nodeName`.
    #[serde(borrow, default)]
    pub(crate) node_name: Cow<'a, str>,
}

/// Reads the head of an encoded object; `None` if it is none.
pub(crate) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn the_head_of_a_pod_is_read_and_the_rest_is_skipped() {
        let pod = br#"{"kind":"Pod","metadata":{"name":"web","namespace":"default","uid":"u-1",
            "labels":{"a":"b"}},"spec":{"containers":[{"name":"x"}],"nodeName":"worker-1"}}"#;
        let head = head(pod).expect("a pod has a head");
        assert_eq!(head.metadata.name, "web");
        assert_eq!(head.metadata.uid, "u-1");
        assert_eq!(head.spec.node_name, "worker-1");
    }

    #[test]
    fn what_is_no_object_has_no_head() {
        assert!(head(b"[]").is_none());
        assert!(head(b"{\"metadata\":3}").is_none());
    }
}
