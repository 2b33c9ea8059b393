//! Objects of any shape, with names and words that the rules know: what no client should send.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Names of fields, so that random objects get past the first level, and directives of patches.
const KEYS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "generation",
    "deletionTimestamp",
    "creationTimestamp",
    "spec",
    "template",
    "selector",
    "matchLabels",
    "matchExpressions",
    "operator",
    "key",
    "values",
    "containers",
    "initContainers",
    "image",
    "ports",
    "containerPort",
    "hostPort",
    "env",
    "valueFrom",
    "fieldRef",
    "volumeMounts",
    "mountPath",
    "volumes",
    "projected",
    "sources",
    "items",
    "resources",
    "limits",
    "requests",
    "cpu",
    "livenessProbe",
    "httpGet",
    "port",
    "tolerations",
    "effect",
    "taints",
    "hostNetwork",
    "strategy",
    "rollingUpdate",
    "maxSurge",
    "maxUnavailable",
    "type",
    "status",
    "conditions",
    "addresses",
    "containerStatuses",
    "initContainerStatuses",
    "state",
    "terminated",
    "lastState",
    "finishedAt",
    "restartCount",
    "data",
    "stringData",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/finalizers",
];

const WORDS: &[&str] = &[
    "",
    "a",
    "replace",
    "delete",
    "merge",
    "Always",
    "RollingUpdate",
    "25%",
    "%",
    "1",
    "9e99999999",
    "-5Gi",
    "é",
    "../x",
    "2026-01-01T00:00:00Z",
    "-9999-01-01T00:00:00Z",
    "True",
    "Exists",
];

/// Any JSON value.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![
            Just(0),
            Just(-1),
            Just(i64::MIN),
            Just(i64::MAX),
            any::<i64>()
        ]
        .prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        proptest::sample::select(WORDS).prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 128, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner),
        ]
    })
}

/// Any JSON object.
pub(crate) fn any_object() -> impl Strategy<Value = Value> {
    members(any_json())
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let pair = (proptest::sample::select(KEYS), value);
    proptest::collection::vec(pair, 0..8).prop_map(|pairs| {
        let pairs = pairs
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        Value::Object(pairs.collect::<Map<_, _>>())
    })
}
