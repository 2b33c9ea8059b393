//! The client against an API in memory, in paused time.

mod recorder;
mod watching;
mod work_queue;

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::api::Api;
use crate::client::Client;
use crate::fake::FakeApi;

fn fake() -> (Arc<FakeApi>, Client) {
    let api = FakeApi::new();
    let door: Arc<dyn Api> = api.clone();
    (api, Client::new(door))
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"value": value}},
        "data": {"value": value},
    }))
    .unwrap()
}
