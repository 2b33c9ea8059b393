use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use proptest::prelude::*;
use serde_json::json;

use crate::node_info::{NodeInfo, PodUse, Snapshot};
use crate::profile::Profile;
use crate::schedule_one::schedule_one;

#[derive(Clone, Debug)]
struct Machine {
    cpu: i64,
    memory: i64,
    pods: i64,
    cordoned: bool,
    tainted: bool,
    used: Vec<(i64, i64)>,
}

fn machine() -> impl Strategy<Value = Machine> {
    let used = prop::collection::vec((1_i64..2000, 1_i64..2000), 0..4);
    (
        1_i64..4000,
        1_i64..4000,
        0_i64..5,
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
        used,
    )
        .prop_map(|(cpu, memory, pods, cordoned, tainted, used)| Machine {
            cpu,
            memory,
            pods,
            cordoned,
            tainted,
            used,
        })
}

fn pod(cpu: i64, memory: i64) -> Pod {
    let requests = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
    let container = json!({"name": "c", "resources": {"requests": requests}});
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}}))
        .unwrap()
}

fn info(index: usize, machine: &Machine) -> NodeInfo {
    let taints = if machine.tainted {
        json!([{"key": "k", "effect": "NoSchedule"}])
    } else {
        json!([])
    };
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": format!("n{index}")},
        "spec": {"unschedulable": machine.cordoned, "taints": taints},
        "status": {"allocatable": {
            "cpu": format!("{}m", machine.cpu),
            "memory": machine.memory.to_string(),
            "pods": machine.pods.to_string(),
        }},
    }))
    .unwrap();
    let mut info = NodeInfo::new(Arc::new(node));
    for (cpu, memory) in &machine.used {
        info.add(&PodUse::of(&pod(*cpu, *memory)));
    }
    info
}

/// What is left of a machine after the pod, as hundredths; `None` when it does not fit.
fn oracle(machine: &Machine, cpu: i64, memory: i64) -> Option<i64> {
    let used_cpu: i64 = machine.used.iter().map(|used| used.0).sum();
    let used_memory: i64 = machine.used.iter().map(|used| used.1).sum();
    let count = i64::try_from(machine.used.len()).unwrap();
    let fits = !machine.cordoned
        && !machine.tainted
        && count < machine.pods
        && used_cpu + cpu <= machine.cpu
        && used_memory + memory <= machine.memory;
    let left = |all: i64, used: i64| (all - used) * 100 / all;
    fits.then(|| {
        let cpu = left(machine.cpu, used_cpu + cpu);
        i64::midpoint(cpu, left(machine.memory, used_memory + memory))
    })
}

proptest! {
    #[test]
    fn a_pod_goes_to_the_emptiest_node_that_fits(
        machines in prop::collection::vec(machine(), 0..6),
        cpu in 1_i64..2000,
        memory in 1_i64..2000,
    ) {
        let snapshot: Snapshot =
            machines.iter().enumerate().map(|(index, machine)| info(index, machine)).collect();
        let scores: Vec<_> = machines.iter().map(|machine| oracle(machine, cpu, memory)).collect();
        let best = scores.iter().flatten().max();
        match schedule_one(&Profile::default(), &snapshot, &pod(cpu, memory)) {
            Ok(placement) => {
                let index: usize = placement.node[1..].parse().unwrap();
                prop_assert!(scores[index].is_some());
                prop_assert_eq!(scores[index].as_ref(), best);
                prop_assert_eq!(placement.feasible, scores.iter().flatten().count());
            }
            Err(error) => {
                prop_assert!(best.is_none());
                prop_assert_eq!(error.rejections.len(), machines.len());
            }
        }
    }
}

#[test]
fn the_message_counts_reasons_over_all_nodes() {
    let machine = Machine {
        cpu: 100,
        memory: 100,
        pods: 9,
        cordoned: false,
        tainted: false,
        used: vec![],
    };
    let cordoned = Machine {
        cordoned: true,
        ..machine.clone()
    };
    let snapshot: Snapshot = [info(0, &machine), info(1, &machine), info(2, &cordoned)]
        .into_iter()
        .collect();
    let error = schedule_one(&Profile::default(), &snapshot, &pod(200, 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    );
    let error = schedule_one(&Profile::default(), &Snapshot::default(), &pod(1, 1)).unwrap_err();
    assert_eq!(error.to_string(), "no nodes available to schedule pods");
}
