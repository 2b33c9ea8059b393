use proptest::prelude::*;

use super::*;
use crate::testing::stand::pod;

const HOST: &str = "# a comment\nnameserver 9.9.9.9\nnameserver 8.8.8.8\n\
                    search old.example\nsearch a.example. b.example\noptions rotate ndots:2\n";

fn with(change: impl FnOnce(&mut PodSpec)) -> Pod {
    let mut pod = pod("a");
    pod.metadata.namespace = Some("shop".into());
    change(pod.spec.as_mut().unwrap());
    pod
}

fn settings() -> PodSettings {
    PodSettings {
        cluster_dns: vec!["10.0.0.10".into()],
        cluster_domain: "cluster.local".into(),
        ..PodSettings::default()
    }
}

fn option(name: &str, value: Option<&str>) -> PodDNSConfigOption {
    PodDNSConfigOption {
        name: Some(name.into()),
        value: value.map(str::to_owned),
    }
}

#[test]
fn cluster_first_asks_the_cluster_and_searches_its_domains_before_the_hosts() {
    let (dns, warnings) = pod_dns(&with(|_| ()), &settings(), Some(HOST));
    assert_eq!(dns.servers, ["10.0.0.10"]);
    assert_eq!(
        dns.searches,
        [
            "shop.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "a.example",
            "b.example"
        ]
    );
    assert_eq!(dns.options, ["ndots:5"]);
    assert!(warnings.is_empty());
}

#[test]
fn without_a_cluster_dns_the_hosts_is_used_and_the_user_is_told() {
    let (dns, warnings) = pod_dns(&with(|_| ()), &PodSettings::default(), Some(HOST));
    assert_eq!(dns.servers, ["9.9.9.9", "8.8.8.8"]);
    assert_eq!(dns.searches, ["a.example", "b.example"]);
    assert_eq!(dns.options, ["rotate", "ndots:2"]);
    let [(reason, text)] = &warnings[..] else {
        panic!("{warnings:?}")
    };
    assert_eq!(*reason, "MissingClusterDNS");
    assert!(
        text.contains("Falling back to \"Default\" policy."),
        "{text}"
    );
}

#[test]
fn a_pod_in_the_hosts_network_asks_the_cluster_only_if_it_says_so() {
    let host = with(|spec| spec.host_network = Some(true));
    assert_eq!(
        pod_dns(&host, &settings(), Some(HOST)).0.servers[0],
        "9.9.9.9"
    );
    let both = with(|spec| {
        spec.host_network = Some(true);
        spec.dns_policy = Some("ClusterFirstWithHostNet".into());
    });
    assert_eq!(
        pod_dns(&both, &settings(), Some(HOST)).0.servers,
        ["10.0.0.10"]
    );
}

#[test]
fn the_default_policy_is_the_hosts_resolver() {
    let pod = with(|spec| spec.dns_policy = Some("Default".into()));
    let (dns, warnings) = pod_dns(&pod, &settings(), Some(HOST));
    assert_eq!(dns.servers, ["9.9.9.9", "8.8.8.8"]);
    assert!(warnings.is_empty());
    let (dns, _) = pod_dns(&pod, &settings(), None);
    assert_eq!(
        (dns.servers, dns.searches),
        (vec!["127.0.0.1".to_owned()], vec![".".to_owned()])
    );
}

#[test]
fn what_the_pod_says_is_added_and_its_options_win() {
    let config = PodDNSConfig {
        nameservers: Some(vec!["1.1.1.1".into(), "10.0.0.10".into()]),
        searches: Some(vec!["my.example".into(), "svc.cluster.local".into()]),
        options: Some(vec![option("ndots", Some("2")), option("edns0", None)]),
    };
    let pod = with(|spec| spec.dns_config = Some(config.clone()));
    let (dns, _) = pod_dns(&pod, &settings(), None);
    assert_eq!(dns.servers, ["10.0.0.10", "1.1.1.1"]);
    assert_eq!(dns.searches.last().unwrap(), "my.example");
    assert_eq!(dns.options, ["ndots:2", "edns0"]);
    let alone = with(|spec| {
        spec.dns_config = Some(config);
        spec.dns_policy = Some("None".into());
    });
    let (dns, _) = pod_dns(&alone, &settings(), Some(HOST));
    assert_eq!(dns.servers, ["1.1.1.1", "10.0.0.10"]);
    assert_eq!(dns.searches, ["my.example", "svc.cluster.local"]);
}

#[test]
fn what_exceeds_the_limits_is_left_out_and_named() {
    let config = PodDNSConfig {
        nameservers: Some(["1.1.1.1", "2.2.2.2", "3.3.3.3"].map(str::to_owned).into()),
        searches: Some((0..40).map(|number| format!("d{number}.example")).collect()),
        options: None,
    };
    let pod = with(|spec| spec.dns_config = Some(config));
    let (dns, warnings) = pod_dns(&pod, &settings(), None);
    assert_eq!(dns.servers, ["10.0.0.10", "1.1.1.1", "2.2.2.2"]);
    assert_eq!(dns.searches.len(), 32);
    let reasons: Vec<_> = warnings.iter().map(|(reason, _)| *reason).collect();
    assert_eq!(reasons, ["DNSConfigForming", "DNSConfigForming"]);
    assert_eq!(
        warnings[0].1,
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: 10.0.0.10 1.1.1.1 2.2.2.2"
    );
    assert!(
        warnings[1]
            .1
            .starts_with("Search Line limits were exceeded")
    );
}

proptest! {
    #[test]
    fn no_search_line_exceeds_a_limit_and_only_a_cut_is_reported(
        lengths in prop::collection::vec(1_usize..300, 0..45),
    ) {
        let name = |(at, length): (usize, &usize)| format!("{at:02}").repeat(*length);
        let written: Vec<String> = lengths.iter().enumerate().map(name).collect();
        let mut kept = written.clone();
        let told = cut_searches(&mut kept);
        prop_assert!(kept.len() <= SEARCHES_MAX);
        prop_assert!(kept.join(" ").len() <= SEARCH_BYTES_MAX);
        prop_assert!(kept.iter().all(|one| one.len() <= DOMAIN_BYTES_MAX));
        prop_assert_eq!(told.is_some(), kept != written);
        // In their order, and nothing that was not written.
        let mut rest = written.iter();
        prop_assert!(kept.iter().all(|one| rest.any(|other| other == one)));
    }
}
