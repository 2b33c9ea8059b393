use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::json;

use super::schema::{Leaf, leaves, object};
use super::*;
use crate::testing::stand::pod;

fn lines() -> Vec<(String, Row)> {
    let sections = parse(TEXT).unwrap();
    let mut all = Vec::new();
    for section in &sections {
        for root in &section.roots {
            let rows = section.rows.iter();
            all.extend(rows.map(|row| (format!("{root}.{}", row.path), row.clone())));
        }
    }
    all
}

/// Whether the line at `path` speaks of the leaf.
fn speaks(path: &str, leaf: &str) -> bool {
    if let Some(parent) = path.strip_suffix("**") {
        let parent = parent.trim_end_matches('.');
        return leaf
            .strip_prefix(parent)
            .is_some_and(|rest| rest.starts_with(['.', '[', '{']));
    }
    match path.split_once('{') {
        Some((map, _)) => leaf.strip_suffix("{}") == Some(map),
        None => path == leaf,
    }
}

fn api() -> Vec<Leaf> {
    leaves::<PodSpec>("spec")
}

fn with(path: &str, sample: &Value) -> Pod {
    serde_json::from_value(object(path, sample)).unwrap()
}

#[test]
fn every_field_of_the_api_has_a_line_and_every_line_a_field() {
    let (lines, api) = (lines(), api());
    assert!(api.len() > 700, "the walk has ended early: {}", api.len());
    let mut problems = Vec::new();
    for leaf in &api {
        let found: Vec<_> = lines
            .iter()
            .filter(|(path, _)| speaks(path, &leaf.path))
            .collect();
        let is_map = found.iter().all(|(path, _)| path.contains('{'));
        match found.len() {
            0 => problems.push(format!("no line speaks of {}", leaf.path)),
            1 => {}
            _ if is_map => {}
            _ => problems.push(format!("several lines speak of {}: {found:?}", leaf.path)),
        }
    }
    for (path, _) in &lines {
        if !api.iter().any(|leaf| speaks(path, &leaf.path)) {
            problems.push(format!("the API has no {path}"));
        }
    }
    let distinct: BTreeSet<_> = lines.iter().map(|(path, _)| path).collect();
    assert_eq!(distinct.len(), lines.len(), "a path stands twice");
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn a_pod_that_sets_a_refused_field_is_refused_by_its_name() {
    let mut refused_fields = 0;
    for leaf in api() {
        let pod = with(&leaf.path, &leaf.sample);
        let found = refused(&pod);
        let lines = lines_of(&leaf.path);
        let expected = lines
            .iter()
            .any(|row| row.state == State::Refused || !row.values.is_empty());
        // A sample is none of the values that are served, unless it is the one of a switch.
        let is_served_switch = lines.iter().any(|row| row.values == ["true"]);
        assert_eq!(
            !found.is_empty(),
            expected && !is_served_switch,
            "{}: {found:?}",
            leaf.path
        );
        if let Some(named) = found.first() {
            refused_fields += 1;
            let last = |path: &str| path.split(['.', '[', '{', ':']).nth(1).map(str::to_owned);
            assert_eq!(last(named), last(&leaf.path), "{named}");
        }
    }
    assert!(refused_fields > 100, "{refused_fields}");
}

/// The lines that judge the leaf: of a map's, those of an unknown key.
fn lines_of(leaf: &str) -> Vec<Row> {
    let all = lines().into_iter().filter(|(path, _)| speaks(path, leaf));
    let all = all.filter(|(path, _)| !path.contains('{') || path.ends_with("{*}"));
    all.map(|(_, row)| row).collect()
}

#[test]
fn the_values_that_are_served_are_taken_and_no_others() {
    for leaf in api() {
        for row in lines_of(&leaf.path)
            .iter()
            .filter(|row| !row.values.is_empty())
        {
            for value in &row.values {
                let value = match leaf.sample {
                    Value::Bool(_) => json!(value == "true"),
                    _ => json!(value),
                };
                let found = refused(&with(&leaf.path, &value));
                assert!(found.is_empty(), "{}: {found:?}", leaf.path);
            }
        }
    }
}

#[test]
fn a_refused_field_is_named_by_its_path_in_the_pod() {
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "hostUsers": false,
        "containers": [
            {"name": "a"},
            {"name": "b", "volumeDevices": [{"name": "d", "devicePath": "/d"}],
             "resources": {"limits": {"cpu": "1", "vendor.example/gpu": "1"}}},
        ],
        "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/p"}}],
    }}))
    .unwrap();
    assert_eq!(
        refused(&pod),
        [
            "spec.containers[b].resources.limits[vendor.example/gpu]",
            "spec.containers[b].volumeDevices",
            "spec.hostUsers: false",
            "spec.volumes[v].nfs",
        ]
    );
}

#[test]
fn what_says_nothing_is_not_refused() {
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "resourceClaims": [],
        "hostUsers": true,
        "schedulingGates": [],
        "containers": [{"name": "a", "volumeDevices": [], "lifecycle": {}}],
    }}))
    .unwrap();
    assert_eq!(refused(&pod), Vec::<String>::new());
}

#[test]
fn an_ordinary_pod_is_served() {
    assert_eq!(refused(&pod("a")), Vec::<String>::new());
}

#[test]
fn a_field_without_a_line_cannot_pass() {
    let sections = parse("## pod: spec\nnodeName control").unwrap();
    let spec = json!({"nodeName": "n", "novel": {"field": 1}});
    let mut walk = Walk {
        table: &Table::new(&sections),
        found: Vec::new(),
    };
    walk.value("spec", "spec", &spec);
    assert_eq!(walk.found, ["spec.novel.field"]);
}
