use serde_json::json;

use super::*;

fn deployment(replicas: i32) -> Deployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {},
            "template": {},
            "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
        },
    }))
    .unwrap()
}

/// A set that was scaled last when the deployment wanted `desired`.
fn set(age: u8, replicas: i32, desired: i32) -> Arc<ReplicaSet> {
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {
            "name": age.to_string(),
            "creationTimestamp": format!("2026-01-01T00:00:{age:02}Z"),
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": desired.to_string(),
                "deployment.kubernetes.io/max-replicas": desired.to_string(),
            },
        },
        "spec": {"replicas": replicas, "selector": {}},
    }))
    .unwrap();
    Arc::new(set)
}

fn sets(old: &[i32], new: i32) -> Sets {
    let desired = old.iter().sum::<i32>() + new;
    let old = (1..)
        .zip(old)
        .map(|(age, replicas)| set(age, *replicas, desired))
        .collect();
    Sets {
        new: Some(set(9, new, desired)),
        old,
    }
}

/// Replicas after scaling, the new set first.
fn scaled(wanted: i32, old: &[i32], new: i32) -> Vec<i32> {
    let sets = sets(old, new);
    let scales = plan(&deployment(wanted), &sets);
    sets.all()
        .map(|set| {
            let scale = scales.iter().find(|scale| Arc::ptr_eq(&scale.set, set));
            scale.map_or(set_replicas(set), |scale| scale.replicas)
        })
        .collect()
}

#[test]
fn amid_a_roll_out_the_difference_is_shared_in_proportion() {
    // The cases of the Kubernetes documentation's example and its neighbours.
    assert_eq!(scaled(20, &[5], 5), [10, 10]);
    assert_eq!(scaled(5, &[5], 5), [3, 2]);
    assert_eq!(scaled(15, &[8], 2), [3, 12]);
    assert_eq!(scaled(0, &[5, 2], 3), [0, 0, 0]);
}

#[test]
fn the_only_active_set_takes_everything() {
    assert_eq!(scaled(7, &[0, 0], 3), [7, 0, 0]);
    assert_eq!(scaled(7, &[3, 0], 0), [0, 7, 0]);
    assert_eq!(scaled(7, &[0, 0], 0), [7, 0, 0]);
}

#[test]
fn a_change_of_replicas_is_seen_in_the_sets_annotations() {
    assert!(is_scaling(&deployment(4), &sets(&[1], 2)));
    assert!(!is_scaling(&deployment(3), &sets(&[1], 2)));
}
