//! What a request becomes on its way to a node.

use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use serde_json::{Value, json};
use swiftlet_client::api::resources;

use super::log::options;
use super::stream::{Speech, Wanted, speech};
use super::target::{Place, Pod, place_of};
use crate::route::{self, Target};

fn pod(containers: &[&str], init: &[&str]) -> Pod {
    let list =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    Pod::of(json!({
        "metadata": {"name": "web"},
        "spec": {"containers": list(containers), "initContainers": list(init)},
    }))
}

fn target(subresource: &'static str) -> Target {
    Target {
        resource: route::resource(&resources::PODS).unwrap(),
        namespace: "default".into(),
        name: "web".into(),
        subresource,
    }
}

#[test]
fn the_container_is_the_only_one_or_must_be_named() {
    let words = |pod: &Pod, name: &str| pod.container(name).unwrap_err().to_string();
    let two = pod(&["a", "b"], &[]);
    assert_eq!(two.container("b").unwrap(), "b");
    assert_eq!(pod(&["a"], &["i"]).container("").unwrap(), "a");
    assert_eq!(pod(&["a"], &["i"]).container("i").unwrap(), "i");
    let expected = "a container name must be specified for pod web, choose one of: [a b]";
    assert!(words(&two, "").contains(expected));
    assert!(words(&two, "c").contains("container c is not valid for pod web"));
}

#[test]
fn a_node_is_where_it_says() {
    let node = json!({"status": {
        "addresses": [
            {"type": "Hostname", "address": "n"},
            {"type": "InternalIP", "address": "10.0.0.7"},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 4321}},
    }});
    let place = Place {
        node: "n".into(),
        address: [10, 0, 0, 7].into(),
        port: 4321,
    };
    assert_eq!(place_of("n", &node).unwrap(), place);
    let silent = json!({"status": {"addresses": [{"type": "InternalIP", "address": "::1"}]}});
    assert_eq!(place_of("n", &silent).unwrap().port, 10250);
    assert!(place_of("n", &json!({})).is_err());
}

#[test]
fn a_query_becomes_the_nodes() {
    let query = "container=main&command=sh&command=-c&command=exit%207&stdin=true&stdout=true";
    let path = Wanted::parse(query).path(&target("exec"), &pod(&["main"], &[]));
    assert_eq!(
        path.unwrap(),
        "/exec/default/web/main?input=1&output=1&command=sh&command=-c&command=exit+7"
    );
    let path = Wanted::parse("stdout=true&tty=true").path(&target("attach"), &pod(&["a"], &[]));
    assert_eq!(path.unwrap(), "/attach/default/web/a?output=1&tty=1");
    let path = Wanted::parse("ports=80").path(&target("portforward"), &pod(&["a", "b"], &[]));
    assert_eq!(path.unwrap(), "/portForward/default/web?port=80");
}

#[test]
fn a_client_that_speaks_otherwise_is_refused_so_that_it_falls_back() {
    let offer = |subresource: &str, offers: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(offers));
        speech(subresource, &headers)
    };
    assert_eq!(offer("exec", "v5.channel.k8s.io"), Speech::Unknown);
    assert_eq!(
        offer("exec", "v5.channel.k8s.io, v4.channel.k8s.io"),
        Speech::Node
    );
    let tunnel = "SPDY/3.1+portforward.k8s.io";
    assert_eq!(offer("portforward", tunnel), Speech::Tunnel);
    assert_eq!(offer("exec", tunnel), Speech::Unknown);
    let mut spdy = HeaderMap::new();
    spdy.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    assert_eq!(speech("exec", &spdy), Speech::Node);
}

#[test]
fn wrong_options_of_a_log_are_named_as_kubernetes_names_them() {
    let words = |query: &str| options("web", query).unwrap_err();
    let negative = words("tailLines=-1");
    assert_eq!(negative.code(), 422);
    assert_eq!(
        negative.to_string(),
        "PodLogOptions \"web\" is invalid: tailLines: Invalid value: -1: must be greater than or \
         equal to 0"
    );
    assert_eq!(words("tailLines=x").code(), 400);
    assert!(options("web", "follow=true&container=main").unwrap().follow);
}
