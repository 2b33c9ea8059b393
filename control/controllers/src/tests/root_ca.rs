use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use serde_json::json;
use swiftlet_client::Object;

use super::cluster::{Cluster, sleep};

const NAME: &str = "kube-root-ca.crt";

#[tokio::test(start_paused = true)]
async fn every_namespace_has_the_authority_and_gets_it_back() {
    let cluster = Cluster::start();
    cluster
        .create::<Namespace>(json!({"metadata": {"name": "default"}}))
        .await;
    sleep(1).await;
    let map: ConfigMap = cluster.get(NAME).await;
    let wanted = BTreeMap::from([("ca.crt".to_owned(), "certificate".to_owned())]);
    assert_eq!(map.data, Some(wanted.clone()));
    cluster
        .patch::<ConfigMap>(NAME, json!({"data": {"ca.crt": "forged"}}))
        .await;
    sleep(1).await;
    let map: ConfigMap = cluster.get(NAME).await;
    assert_eq!(map.data, Some(wanted));
    cluster.delete(&map, None).await;
    sleep(1).await;
    let again: ConfigMap = cluster.get(NAME).await;
    assert_ne!(map.uid(), again.uid());
}
