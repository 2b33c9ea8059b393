//! Services.

use jiff::Timestamp;
use serde_json::Value;

use super::Printer;
use super::column::{Column, created, name, text_or};
use crate::strategy::{list_at, text_at};

pub(super) const PRINTER: Printer = Printer {
    columns: &[
        Column::NAME,
        Column::text("Type", "How the service is exposed."),
        Column::text("Cluster-IP", "The address inside the cluster."),
        Column::text("External-IP", "The address outside the cluster."),
        Column::text("Port(s)", "The ports of the service."),
        Column::AGE,
        Column::text("Selector", "The labels of the pods that serve.").wide(),
    ],
    cells,
};

fn cells(service: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(service),
        text_at(service, "/spec/type").into(),
        text_or(service, "/spec/clusterIP", "<none>").into(),
        external(service).into(),
        ports(service).into(),
        created(service, now),
        selector(service).into(),
    ]
}

fn external(service: &Value) -> String {
    let texts = |pointer: &str| -> Vec<&str> {
        let list = list_at(service, pointer).iter();
        list.filter_map(Value::as_str).collect()
    };
    let own = texts("/spec/externalIPs");
    match text_at(service, "/spec/type") {
        "ExternalName" => text_at(service, "/spec/externalName").to_owned(),
        "LoadBalancer" => {
            let ingress = list_at(service, "/status/loadBalancer/ingress").iter();
            let mut all: Vec<&str> = ingress
                .map(|one| match text_at(one, "/ip") {
                    "" => text_at(one, "/hostname"),
                    ip => ip,
                })
                .collect();
            all.extend(own);
            if all.is_empty() {
                "<pending>".into()
            } else {
                all.join(",")
            }
        }
        _ if own.is_empty() => "<none>".into(),
        _ => own.join(","),
    }
}

fn ports(service: &Value) -> String {
    let ports: Vec<String> = list_at(service, "/spec/ports")
        .iter()
        .map(|port| {
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
            let protocol = text_at(port, "/protocol");
            match number("nodePort") {
                0 => format!("{}/{protocol}", number("port")),
                on_nodes => format!("{}:{on_nodes}/{protocol}", number("port")),
            }
        })
        .collect();
    if ports.is_empty() {
        "<none>".into()
    } else {
        ports.join(",")
    }
}

fn selector(service: &Value) -> String {
    let selector = service.pointer("/spec/selector").and_then(Value::as_object);
    let pairs: Vec<String> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        "<none>".into()
    } else {
        pairs.join(",")
    }
}
