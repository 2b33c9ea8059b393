//! Mirror pods: what the API shows of the static pods of a node.

use bytes::Bytes;
use serde_json::{Value, json};
use swiftlet_client::api::{DeleteParameters, ObjectName, resources};
use swiftlet_proto::v1::ObjectKey;

use super::{ReportError, Reports, decode, encode};
use crate::references;

/// The annotation that makes a pod a mirror pod; it names the static pod's hash
/// (pkg/kubelet/types/pod_update.go).
const MIRROR: &str = "kubernetes.io/config.mirror";

impl Reports {
    /// Creates a mirror pod. One of the same hash that is there already is success.
    ///
    /// It may name nothing of the cluster: what a node's pods name the node may read, and this pod
    /// is the node's own word (plugin/pkg/admission/noderestriction).
    pub(crate) async fn create_mirror_pod(&self, pod_json: &Bytes) -> Result<Bytes, ReportError> {
        let mut pod = decode(pod_json, "pod_json")?;
        if !pod["metadata"]["annotations"][MIRROR].is_string() {
            return Err(ReportError::Refused("the pod is no mirror pod"));
        }
        if pod["spec"]["nodeName"] != *self.node {
            return Err(ReportError::Refused("the pod is on another node"));
        }
        if has_account(&pod) || !references::of(pod_json).is_empty() {
            return Err(ReportError::Refused(
                "a mirror pod may not name API objects",
            ));
        }
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            // Never those that the node sent.
            metadata.remove("ownerReferences");
            let owner = self.owner().await?;
            metadata.extend(owner.map(|owner| ("ownerReferences".into(), json!([owner]))));
        }
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let collection = ObjectName::new(resources::PODS, namespace, "");
        match self.api.create(&collection, encode(&pod)).await {
            Err(error) if error.is_already_exists() => {
                let name = ObjectName::new(resources::PODS, namespace, name);
                let stored = self.api.get(&name).await?;
                if hash(&decode(&stored, "stored pod")?) == hash(&pod) {
                    Ok(stored)
                } else {
                    Err(error.into())
                }
            }
            result => Ok(result?),
        }
    }

    /// The Node as owner, so that its mirror pods go with it.
    async fn owner(&self) -> Result<Option<Value>, ReportError> {
        let name = ObjectName::new(resources::NODES, "", &self.node);
        let node = match self.api.get(&name).await {
            Ok(node) => decode(&node, "stored node")?,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "name": &*self.node,
            "uid": node["metadata"]["uid"],
            "controller": true,
        })))
    }

    /// Removes a mirror pod at once. One that is gone, or has another uid, is success.
    pub(crate) async fn delete_mirror_pod(&self, key: ObjectKey) -> Result<(), ReportError> {
        let name = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let pod = match self.api.get(&name).await {
            Ok(pod) => decode(&pod, "stored pod")?,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !key.uid.is_empty() && pod["metadata"]["uid"] != *key.uid {
            return Ok(());
        }
        if pod["spec"]["nodeName"] != *self.node {
            return Err(ReportError::Refused("the pod is on another node"));
        }
        if hash(&pod).is_none() {
            return Err(ReportError::Refused("the pod is no mirror pod"));
        }
        let parameters = DeleteParameters {
            grace_period_seconds: Some(0),
            uid: pod["metadata"]["uid"].as_str().map(str::to_owned),
            ..DeleteParameters::default()
        };
        match self.api.delete(&name, parameters).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Whether the pod acts for a service account, or shall get the token of one.
fn has_account(pod: &Value) -> bool {
    let spec = &pod["spec"];
    let named = |field: &str| spec[field].as_str().is_some_and(|name| !name.is_empty());
    let volumes = spec["volumes"].as_array().into_iter().flatten();
    let mut sources = volumes.filter_map(|volume| volume["projected"]["sources"].as_array());
    named("serviceAccountName")
        || named("serviceAccount")
        || sources.any(|all| all.iter().any(|one| one["serviceAccountToken"].is_object()))
}

fn hash(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][MIRROR].as_str()
}

#[cfg(test)]
mod tests {
    use swiftlet_client::api::Api as _;
    use swiftlet_client::fake::FakeApi;

    use super::*;

    fn mirror(hash: &str, node: &str) -> Bytes {
        encode(&json!({
            "metadata": {
                "name": "etcd-worker", "namespace": "kube-system", "annotations": {MIRROR: hash},
            },
            "spec": {"nodeName": node},
        }))
    }

    fn key(uid: &str) -> ObjectKey {
        ObjectKey {
            namespace: "kube-system".into(),
            name: "etcd-worker".into(),
            uid: uid.into(),
        }
    }

    #[tokio::test]
    async fn a_mirror_pod_belongs_to_its_node_and_is_created_once() {
        let api = FakeApi::new();
        let node = encode(&json!({"metadata": {"name": "worker"}}));
        let nodes = ObjectName::new(resources::NODES, "", "");
        api.create(&nodes, node).await.unwrap();
        let reports = Reports::new(api.clone(), "worker");
        let foreign = reports.create_mirror_pod(&mirror("h", "other")).await;
        assert!(matches!(foreign, Err(ReportError::Refused(_))));
        let plain = encode(&json!({"metadata": {"name": "a"}, "spec": {"nodeName": "worker"}}));
        let plain = reports.create_mirror_pod(&plain).await;
        assert!(matches!(plain, Err(ReportError::Refused(_))));
        let first = reports.create_mirror_pod(&mirror("h", "worker")).await;
        let stored = decode(&first.unwrap(), "pod").unwrap();
        let owner = &stored["metadata"]["ownerReferences"][0];
        assert_eq!(
            (&owner["kind"], &owner["name"]),
            (&json!("Node"), &json!("worker"))
        );
        assert!(owner["uid"].is_string());
        let again = reports.create_mirror_pod(&mirror("h", "worker")).await;
        assert!(again.is_ok());
        let newer = reports.create_mirror_pod(&mirror("h2", "worker")).await;
        assert!(matches!(newer, Err(ReportError::Api(_))));
    }

    #[tokio::test]
    async fn a_mirror_pod_opens_nothing_of_the_cluster_to_its_node() {
        let api = FakeApi::new();
        let reports = Reports::new(api.clone(), "worker");
        let token = json!([{"serviceAccountToken": {"path": "token"}}]);
        let variable = json!({"valueFrom": {"configMapKeyRef": {"name": "x", "key": "k"}}});
        let refused = [
            json!({"imagePullSecrets": [{"name": "bootstrap"}]}),
            json!({"serviceAccountName": "admin"}),
            json!({"volumes": [{"name": "v", "projected": {"sources": token}}]}),
            json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}),
            json!({"volumes": [{"name": "v", "ephemeral": {}}]}),
            json!({"containers": [{"name": "c", "env": [variable]}]}),
        ];
        for more in refused {
            let mut pod = decode(&mirror("h", "worker"), "pod").unwrap();
            let more = more.as_object().unwrap().clone();
            pod["spec"].as_object_mut().unwrap().extend(more);
            let answer = reports.create_mirror_pod(&encode(&pod)).await;
            assert!(matches!(answer, Err(ReportError::Refused(_))), "{pod}");
        }
        assert!(api.calls().iter().all(|call| call.verb != "create"));
        // The node has no object: its pod has no owner either, whatever the node says.
        let mut pod = decode(&mirror("h", "worker"), "pod").unwrap();
        pod["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "x"}]);
        let stored = reports.create_mirror_pod(&encode(&pod)).await.unwrap();
        let stored = decode(&stored, "pod").unwrap();
        assert!(stored["metadata"]["ownerReferences"].is_null(), "{stored}");
    }

    #[tokio::test]
    async fn only_a_mirror_pod_of_that_uid_and_node_is_removed() {
        let api = FakeApi::new();
        let reports = Reports::new(api.clone(), "worker");
        reports.delete_mirror_pod(key("never")).await.unwrap();
        let stored = reports.create_mirror_pod(&mirror("h", "worker")).await;
        let stored = decode(&stored.unwrap(), "pod").unwrap();
        let uid = stored["metadata"]["uid"].as_str().unwrap();
        let name = ObjectName::new(resources::PODS, "kube-system", "etcd-worker");
        reports.delete_mirror_pod(key("another")).await.unwrap();
        let elsewhere = Reports::new(api.clone(), "elsewhere");
        assert!(elsewhere.delete_mirror_pod(key(uid)).await.is_err());
        assert!(api.get(&name).await.is_ok());
        reports.delete_mirror_pod(key(uid)).await.unwrap();
        assert!(api.get(&name).await.is_err());
    }
}
