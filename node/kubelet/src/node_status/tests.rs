use super::*;

fn health(network_ready: bool) -> RuntimeHealth {
    let message = String::new();
    RuntimeHealth {
        version: Some(RuntimeVersion {
            name: "fakerd".into(),
            version: "1.6.20".into(),
            api_version: "v1".into(),
        }),
        status: Ok(RuntimeStatus {
            runtime_ready: true,
            network_ready,
            message,
        }),
    }
}

fn facts() -> NodeFacts {
    NodeFacts {
        hostname: "n1".into(),
        internal_ips: vec!["10.0.0.1".into()],
        capacity: Amount {
            cpu_milli: 2000,
            memory_bytes: 4 << 30,
            ephemeral_storage_bytes: 1 << 40,
        },
        reserved: Amount {
            cpu_milli: 500,
            ..Amount::default()
        },
        pods_max: 110,
        ..NodeFacts::default()
    }
}

#[test]
fn a_node_that_is_switched_off_is_not_ready_whatever_the_runtime_says() {
    let facts = NodeFacts {
        shutting_down: true,
        hugepages: [("hugepages-2Mi".to_owned(), 4 << 20)].into(),
        ..facts()
    };
    let node = generate("n1", &facts, &health(true), None, Timestamp::UNIX_EPOCH);
    let status = node.status.unwrap();
    let mut all = status.conditions.iter().flatten();
    let ready = all.find(|one| one.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "False");
    assert_eq!(ready.message.as_deref(), Some("node is shutting down"));
    let allocatable = status.allocatable.unwrap();
    assert_eq!(allocatable["hugepages-2Mi"].0, "4096Ki");
    assert_eq!(
        allocatable["memory"].0, "4190208Ki",
        "huge pages are no ordinary memory"
    );
}

#[test]
fn a_heartbeat_is_no_change_and_readiness_keeps_its_transition_time() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let first = generate("n1", &facts(), &health(true), None, at(1));
    let second = generate("n1", &facts(), &health(true), Some(&first), at(9));
    assert!(is_ready(&first) && !differs(&first, &second));
    let third = generate("n1", &facts(), &health(false), Some(&second), at(20));
    assert!(!is_ready(&third) && differs(&second, &third));
    let status = third.status.unwrap();
    let of = |name: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|one| one.type_ == name)
            .unwrap()
            .last_transition_time
            .clone()
            .unwrap()
            .0
    };
    assert_eq!((of("MemoryPressure"), of("Ready")), (at(1), at(20)));
    let info = status.node_info.unwrap();
    assert_eq!(info.container_runtime_version, "fakerd://1.6.20");
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "1500m");
    assert_eq!(status.capacity.unwrap()["memory"].0, "4194304Ki");
}

#[test]
fn a_node_of_both_families_shows_both_addresses_and_registers_with_both_ranges() {
    let facts = NodeFacts {
        internal_ips: vec!["10.0.0.1".into(), "fd00::1".into()],
        pod_cidrs: vec!["10.244.0.0/24".into(), "fd00:10:244::/64".into()],
        ..facts()
    };
    let node = generate("n1", &facts, &health(true), None, Timestamp::UNIX_EPOCH);
    let spec = node.spec.unwrap();
    assert_eq!(spec.pod_cidr.as_deref(), Some("10.244.0.0/24"));
    assert_eq!(spec.pod_cidrs, Some(facts.pod_cidrs));
    assert_eq!(spec.taints, None);
    let addresses = node.status.unwrap().addresses.unwrap();
    let internal = addresses.iter().filter(|one| one.type_ == "InternalIP");
    let internal: Vec<_> = internal.map(|one| one.address.as_str()).collect();
    assert_eq!(internal, ["10.0.0.1", "fd00::1"]);
}

#[test]
fn a_node_without_ranges_and_taints_registers_with_no_specification() {
    let node = generate("n1", &facts(), &health(true), None, Timestamp::UNIX_EPOCH);
    assert_eq!(node.spec, None);
}
