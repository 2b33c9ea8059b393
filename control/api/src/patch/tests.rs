//! Promises of the patches.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use swiftlet_client::api::PatchKind::{Json, Merge, Strategic};

use super::{PatchError, apply};
use crate::strategy::arbitrary::{any_json, any_object};

fn strategic(object: Value, patch: Value) -> Value {
    apply(Strategic, &object, &patch).expect("the patch applies")
}

fn pod(containers: Value) -> Value {
    json!({"spec": {"containers": containers}})
}

#[test]
fn containers_merge_by_name_and_new_ones_come_first() {
    let old = pod(json!([{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}]));
    let patch = pod(json!([
        {"name": "b", "image": "y"},
        {"name": "a", "env": [{"name": "F", "value": "2"}]},
    ]));
    let want = pod(json!([
        {"name": "b", "image": "y"},
        {"name": "a", "image": "x", "env": [
            {"name": "F", "value": "2"}, {"name": "E", "value": "1"},
        ]},
    ]));
    assert_eq!(strategic(old, patch), want);
}

#[test]
fn the_order_of_elements_is_what_the_patch_says() {
    let old = pod(json!([{"name": "a"}, {"name": "x"}, {"name": "b"}]));
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "b"}, {"name": "a"}, {"name": "c"}],
        "containers": [{"name": "c", "image": "i"}],
    }});
    // The patch does not name `x`, which was before `b`.
    let want = pod(json!([
        {"name": "x"}, {"name": "b"}, {"name": "a"}, {"name": "c", "image": "i"},
    ]));
    assert_eq!(strategic(old, patch), want);
    let reorder = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
    let got = strategic(pod(json!([{"name": "a"}, {"name": "b"}])), reorder);
    assert_eq!(got, pod(json!([{"name": "b"}, {"name": "a"}])));
}

#[test]
fn directives_delete_and_replace() {
    let old = pod(json!([{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]));
    let delete = pod(json!([{"name": "a", "$patch": "delete"}]));
    assert_eq!(
        strategic(old.clone(), delete),
        pod(json!([{"name": "b", "image": "y"}]))
    );
    let replace = pod(json!([{"name": "c"}, {"$patch": "replace"}]));
    assert_eq!(strategic(old.clone(), replace), pod(json!([{"name": "c"}])));
    let one = pod(json!([{"name": "a", "$patch": "replace", "command": ["c"]}]));
    assert_eq!(
        strategic(old.clone(), one),
        pod(json!([{"name": "a", "command": ["c"]}, {"name": "b", "image": "y"}]))
    );
    let whole = json!({"spec": {"$patch": "replace", "nodeName": "n"}});
    assert_eq!(
        strategic(old.clone(), whole),
        json!({"spec": {"nodeName": "n"}})
    );
    let empty = json!({"spec": {"$patch": "delete"}});
    assert_eq!(strategic(old, empty), json!({"spec": {}}));
}

#[test]
fn nulls_delete_and_never_arrive() {
    let old = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let patch = json!({"metadata": {"labels": {"a": null, "c": null}, "annotations": {"x": null}}});
    let want = json!({"metadata": {"labels": {"b": "2"}, "annotations": {}}});
    assert_eq!(strategic(old, patch), want);
}

#[test]
fn retain_keys_switches_from_one_variant_to_another() {
    let old = json!({"spec": {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    }});
    let patch = json!({"spec": {
        "strategy": {"$retainKeys": ["type"], "type": "Recreate"},
        "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}}],
    }});
    let want = json!({"spec": {
        "strategy": {"type": "Recreate"},
        "volumes": [{"name": "v", "emptyDir": {}}],
    }});
    assert_eq!(strategic(old, patch), want);
    let wrong = json!({"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}});
    let refusal = apply(Strategic, &json!({}), &wrong);
    assert!(matches!(refusal, Err(PatchError::Malformed(_))));
}

#[test]
fn finalizers_are_a_set() {
    let old = json!({"metadata": {"finalizers": ["a/a", "b/b"]}});
    let add = json!({"metadata": {"finalizers": ["c/c", "a/a"]}});
    let got = strategic(old.clone(), add);
    let mut finalizers = got["metadata"]["finalizers"]
        .as_array()
        .expect("a list")
        .clone();
    finalizers.sort_by_key(ToString::to_string);
    assert_eq!(finalizers, [json!("a/a"), json!("b/b"), json!("c/c")]);
    let remove = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}});
    assert_eq!(
        strategic(old, remove),
        json!({"metadata": {"finalizers": ["b/b"]}})
    );
}

#[test]
fn merge_keys_are_those_of_the_api() {
    let cases = [
        ("taints", "spec", "key"),
        ("conditions", "status", "type"),
        ("addresses", "status", "type"),
        ("podIPs", "status", "ip"),
        ("ownerReferences", "metadata", "uid"),
        ("hostAliases", "spec", "ip"),
        ("imagePullSecrets", "spec", "name"),
        ("topologySpreadConstraints", "spec", "topologyKey"),
    ];
    for (list, parent, key) in cases {
        let with = |items: Value| json!({parent: {list: items}});
        let old = with(json!([{key: "a", "x": 1}, {key: "b", "x": 2}]));
        let patch = with(json!([{key: "b", "y": 3}]));
        let want = with(json!([{key: "a", "x": 1}, {key: "b", "x": 2, "y": 3}]));
        assert_eq!(strategic(old, patch), want, "{list}");
    }
    let ports = |items: Value| pod(json!([{"name": "a", "ports": items}]));
    assert_eq!(
        strategic(
            ports(json!([{"containerPort": 80, "name": "http"}])),
            ports(json!([{"containerPort": 80, "protocol": "TCP"}])),
        ),
        ports(json!([{"containerPort": 80, "name": "http", "protocol": "TCP"}]))
    );
    let replaced = json!({"spec": {"tolerations": [{"key": "n"}]}});
    let old = json!({"spec": {"tolerations": [{"key": "o"}]}});
    assert_eq!(strategic(old, replaced.clone()), replaced);
}

#[test]
fn an_element_without_its_merge_key_is_refused() {
    let patch = pod(json!([{"image": "x"}]));
    let refusal = apply(Strategic, &pod(json!([])), &patch).expect_err("refused");
    assert_eq!(
        refusal.to_string(),
        r#"map: {"image":"x"} does not contain declared merge key: name"#
    );
}

#[test]
fn json_patches_apply_as_a_whole_or_not_at_all() {
    let object = json!({"a": {"b": 1}, "l": [1, 2]});
    let patch = json!([
        {"op": "test", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/l/-", "value": 3},
        {"op": "replace", "path": "/a/b", "value": 2},
        {"op": "copy", "from": "/a", "path": "/c"},
        {"op": "move", "from": "/l/0", "path": "/first"},
        {"op": "remove", "path": "/a"},
    ]);
    let want = json!({"c": {"b": 2}, "l": [2, 3], "first": 1});
    assert_eq!(apply(Json, &object, &patch), Ok(want));
    let failing = json!([{"op": "test", "path": "/a/b", "value": 9}]);
    assert!(matches!(
        apply(Json, &object, &failing),
        Err(PatchError::DoesNotApply(_))
    ));
    let malformed = json!([{"op": "fly"}]);
    assert!(matches!(
        apply(Json, &object, &malformed),
        Err(PatchError::Malformed(_))
    ));
}

#[test]
fn copies_cannot_make_an_object_explode() {
    let doubling = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let patch = Value::from(vec![doubling; 60]);
    let refusal = apply(Json, &json!({"a": ["xxxxxxxxxx"]}), &patch);
    assert!(matches!(refusal, Err(PatchError::TooLarge(_))));
    let deeper = json!({"op": "copy", "from": "/a", "path": "/a/x"});
    let patch = Value::from(vec![deeper; 200]);
    let refusal = apply(Json, &json!({"a": {}}), &patch);
    assert!(matches!(refusal, Err(PatchError::TooLarge(_))));
}

/// The merge patch that makes `new` of `old`.
fn merge_difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return new.clone();
    };
    let mut patch = Map::new();
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => (),
            Some(before) => {
                patch.insert(key.clone(), merge_difference(before, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Without nulls in objects, which a merge patch cannot write.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value)))
                    .collect(),
            )
        }
        other => other,
    }
}

/// Containers with distinct names, in some order.
fn containers() -> impl Strategy<Value = Vec<(String, u8)>> {
    proptest::sample::subsequence(vec!["a", "b", "c", "d", "e"], 0..=5)
        .prop_shuffle()
        .prop_flat_map(|names| {
            let images = proptest::collection::vec(0..3u8, names.len());
            (Just(names), images)
        })
        .prop_map(|(names, images)| names.into_iter().map(String::from).zip(images).collect())
}

fn listed(containers: &[(String, u8)]) -> Value {
    let items = containers
        .iter()
        .map(|(name, image)| json!({"name": name, "image": image}));
    items.collect::<Vec<_>>().into()
}

/// The strategic patch, as kubectl writes it, that makes `new` of `old`.
fn strategic_difference(old: &[(String, u8)], new: &[(String, u8)]) -> Value {
    let mut items: Vec<Value> = Vec::new();
    for (name, image) in new {
        if !old.contains(&(name.clone(), *image)) {
            items.push(json!({"name": name, "image": image}));
        }
    }
    for (name, _) in old {
        if !new.iter().any(|(other, _)| other == name) {
            items.push(json!({"name": name, "$patch": "delete"}));
        }
    }
    let order: Vec<Value> = new.iter().map(|(name, _)| json!({"name": name})).collect();
    json!({"spec": {"containers": items, "$setElementOrder/containers": order}})
}

proptest! {
    #[test]
    fn no_patch_panics(
        object in any_object(), patch in any_json(), path in "(/(a|spec|0|-|~)){0,3}",
    ) {
        let _ = apply(Merge, &object, &patch);
        let _ = apply(Strategic, &object, &patch);
        let _ = apply(Json, &object, &patch);
        for op in ["add", "remove", "replace", "test"] {
            let operations = json!([{"op": op, "path": path, "value": patch.clone()}]);
            let _ = apply(Json, &object, &operations);
        }
        let operations = json!([{"op": "move", "from": "/spec", "path": path}]);
        let _ = apply(Json, &object, &operations);
    }

    #[test]
    fn a_merge_patch_made_from_a_difference_makes_the_target(
        old in any_object(), new in any_object(),
    ) {
        let (old, new) = (without_nulls(old), without_nulls(new));
        let patch = merge_difference(&old, &new);
        prop_assert_eq!(apply(Merge, &old, &patch), Ok(new));
    }

    #[test]
    fn a_strategic_patch_made_from_a_difference_makes_the_target(
        old in containers(), new in containers(),
    ) {
        let patch = strategic_difference(&old, &new);
        let patched = apply(Strategic, &pod(listed(&old)), &patch);
        prop_assert_eq!(patched, Ok(pod(listed(&new))));
    }
}
