//! What the pod's `/etc/resolv.conf` says. Pure.
//!
//! The rules are those of `pkg/kubelet/network/dns/dns.go` of Kubernetes.

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodDNSConfigOption, PodSpec};
use swiftlet_model::runtime::DnsConfig;

use crate::options::PodSettings;

/// Most `nameserver` lines that a resolver reads (`MaxDNSNameservers` of the API's validation).
const SERVERS_MAX: usize = 3;
/// Most search domains (`MaxDNSSearchPaths`).
const SEARCHES_MAX: usize = 32;
/// Longest `search` line in bytes (`MaxDNSSearchListChars`).
const SEARCH_BYTES_MAX: usize = 2048;
/// Longest search domain in bytes: longer ones make some resolvers abort.
const DOMAIN_BYTES_MAX: usize = 253;
/// What the cluster's names need: `a.b.svc` is tried with the search list first.
const CLUSTER_OPTION: &str = "ndots:5";

/// Reason of the Event when something was left out.
pub const DNS_CONFIG_FORMING: &str = "DNSConfigForming";
/// Reason of the Event when the node knows no cluster DNS.
pub const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";

/// What a user should know about a pod's DNS: reason and message of a Warning.
pub type DnsWarning = (&'static str, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Host,
    Cluster,
    None,
}

/// What the pod's resolver is told, and what was left out. `host` is the text of the node's own
/// `resolv.conf`; `None` if the node is told to use none.
pub fn pod_dns(
    pod: &Pod,
    settings: &PodSettings,
    host: Option<&str>,
) -> (DnsConfig, Vec<DnsWarning>) {
    let mut warnings = Vec::new();
    let Some(spec) = &pod.spec else {
        return (DnsConfig::default(), warnings);
    };
    let mut config = match policy(spec) {
        Policy::None => DnsConfig::default(),
        Policy::Cluster if !settings.cluster_dns.is_empty() => cluster(pod, settings, host),
        Policy::Cluster => {
            warnings.push((MISSING_CLUSTER_DNS, missing(pod)));
            of_host(host)
        }
        Policy::Host => of_host(host),
    };
    if let Some(written) = &spec.dns_config {
        merge(&mut config, written);
    }
    warnings.extend(cut_servers(&mut config.servers).map(|text| (DNS_CONFIG_FORMING, text)));
    warnings.extend(cut_searches(&mut config.searches).map(|text| (DNS_CONFIG_FORMING, text)));
    (config, warnings)
}

fn policy(spec: &PodSpec) -> Policy {
    let host_network = spec.host_network.unwrap_or_default();
    match spec.dns_policy.as_deref() {
        Some("None") => Policy::None,
        Some("Default") => Policy::Host,
        Some("ClusterFirst") | None if host_network => Policy::Host,
        // What the API server lets through beside these counts as ClusterFirst.
        _ => Policy::Cluster,
    }
}

fn missing(pod: &Pod) -> String {
    let meta = &pod.metadata;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let (name, namespace, uid) = (part(&meta.name), part(&meta.namespace), part(&meta.uid));
    format!(
        "pod: \"{name}_{namespace}({uid})\". kubelet does not have ClusterDNS IP configured and \
         cannot create Pod using \"ClusterFirst\" policy. Falling back to \"Default\" policy."
    )
}

fn of_host(host: Option<&str>) -> DnsConfig {
    match host {
        Some(text) => parse(text),
        None => DnsConfig {
            servers: vec!["127.0.0.1".to_owned()],
            searches: vec![".".to_owned()],
            options: Vec::new(),
        },
    }
}

fn cluster(pod: &Pod, settings: &PodSettings, host: Option<&str>) -> DnsConfig {
    let mut searches = Vec::new();
    let domain = &settings.cluster_domain;
    if !domain.is_empty() {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        searches.push(format!("{namespace}.svc.{domain}"));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    searches.extend(host.map(parse).unwrap_or_default().searches);
    DnsConfig {
        servers: settings.cluster_dns.clone(),
        searches: distinct(searches),
        options: vec![CLUSTER_OPTION.to_owned()],
    }
}

/// Reads a `resolv.conf`: the last `search` line counts, options are collected.
fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let line = line.trim();
        let mut fields = line.split_whitespace();
        match fields.next() {
            Some("nameserver") => config.servers.extend(fields.next().map(str::to_owned)),
            Some("search") => {
                // With or without the last dot it is the same domain.
                let domain = |text: &str| match text {
                    "." => ".".to_owned(),
                    other => other.trim_end_matches('.').to_owned(),
                };
                config.searches = distinct(fields.map(domain).collect());
            }
            Some("options") => config.options.extend(fields.map(str::to_owned)),
            _ => {}
        }
    }
    config.options = distinct(config.options);
    config
}

/// Adds what the pod says: options of the same name are replaced.
fn merge(config: &mut DnsConfig, written: &PodDNSConfig) {
    let all = |own: &mut Vec<String>, more: Option<&Vec<String>>| {
        own.extend(more.into_iter().flatten().cloned());
        *own = distinct(std::mem::take(own));
    };
    all(&mut config.servers, written.nameservers.as_ref());
    all(&mut config.searches, written.searches.as_ref());
    for option in written.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let is_it = |one: &String| one.split(':').next() == Some(name);
        let text = option_text(option);
        match config.options.iter_mut().find(|one| is_it(one)) {
            Some(own) => *own = text,
            None => config.options.push(text),
        }
    }
}

fn option_text(option: &PodDNSConfigOption) -> String {
    let name = option.name.as_deref().unwrap_or_default();
    match option.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{name}:{value}"),
        _ => name.to_owned(),
    }
}

fn cut_servers(servers: &mut Vec<String>) -> Option<String> {
    if servers.len() <= SERVERS_MAX {
        return None;
    }
    servers.truncate(SERVERS_MAX);
    Some(format!(
        "Nameserver limits were exceeded, some nameservers have been omitted, the applied \
         nameserver line is: {}",
        servers.join(" ")
    ))
}

fn cut_searches(searches: &mut Vec<String>) -> Option<String> {
    let before = searches.len();
    searches.truncate(SEARCHES_MAX);
    searches.retain(|domain| domain.len() <= DOMAIN_BYTES_MAX);
    while searches.join(" ").len() > SEARCH_BYTES_MAX {
        searches.pop();
    }
    (searches.len() < before).then(|| {
        format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied \
             search line is: {}",
            searches.join(" ")
        )
    })
}

fn distinct(all: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut all = all;
    all.retain(|one| seen.insert(one.clone()));
    all
}

#[cfg(test)]
mod tests;
