//! Tokens of service accounts, for pods of the node that asks.

use bytes::Bytes;
use serde_json::{Value, json};
use swiftlet_client::api::{ObjectName, resources};
use swiftlet_proto::v1::TokenRequest;

use super::{ReportError, Reports, decode, encode};

/// The service account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

impl Reports {
    /// Asks the API for a token that is bound to a pod of this node; answers its status.
    ///
    /// As Kubernetes' NodeRestriction has it: a node gets tokens only for the accounts of pods that
    /// are bound to itself (plugin/pkg/admission/noderestriction).
    pub(crate) async fn token(&self, request: TokenRequest) -> Result<Bytes, ReportError> {
        let key = request.pod.ok_or(ReportError::Malformed("pod"))?;
        let pod_name = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let pod = decode(&self.api.get(&pod_name).await?, "stored pod")?;
        self.check_pod(&pod, &key.uid, &request.service_account)?;
        let mut spec = json!({
            "expirationSeconds": request.expiration_s,
            "boundObjectRef": {
                "kind": "Pod", "apiVersion": "v1", "name": key.name, "uid": key.uid,
            },
        });
        if !request.audience.is_empty() {
            spec["audiences"] = json!([request.audience]);
        }
        let body = json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": request.service_account, "namespace": key.namespace},
            "spec": spec,
        });
        let account = resources::SERVICE_ACCOUNTS;
        let name = ObjectName::new(account, &key.namespace, &request.service_account)
            .with_subresource("token");
        let answer = decode(&self.api.create(&name, encode(&body)).await?, "answer")?;
        Ok(encode(&answer["status"]))
    }

    fn check_pod(&self, pod: &Value, uid: &str, account: &str) -> Result<(), ReportError> {
        if pod["metadata"]["uid"] != uid {
            return Err(ReportError::Refused("the pod has another uid"));
        }
        if pod["spec"]["nodeName"] != *self.node {
            return Err(ReportError::Refused("the pod is on another node"));
        }
        let named = pod["spec"]["serviceAccountName"].as_str();
        let named = named.filter(|name| !name.is_empty());
        if named.unwrap_or(DEFAULT_ACCOUNT) != account {
            return Err(ReportError::Refused("the pod has another service account"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use swiftlet_client::api::Api as _;
    use swiftlet_client::fake::FakeApi;
    use swiftlet_proto::v1::ObjectKey;

    use super::*;

    #[tokio::test]
    async fn a_node_gets_tokens_for_its_own_pods_and_their_own_accounts_alone() {
        let api = FakeApi::new();
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"nodeName": "worker", "serviceAccountName": "robot"},
        });
        let name = ObjectName::new(resources::PODS, "default", "");
        let pod = api.create(&name, encode(&pod)).await.unwrap();
        let uid = decode(&pod, "pod").unwrap()["metadata"]["uid"].clone();
        let request = TokenRequest {
            pod: Some(ObjectKey {
                namespace: "default".into(),
                name: "web".into(),
                uid: uid.as_str().unwrap().into(),
            }),
            service_account: "robot".into(),
            audience: String::new(),
            expiration_s: 3600,
        };
        let other_account = TokenRequest {
            service_account: "default".into(),
            ..request.clone()
        };
        let reports = Reports::new(api.clone(), "worker");
        let refused = reports.token(other_account).await.unwrap_err();
        assert!(matches!(refused, ReportError::Refused(_)), "{refused}");
        let mut other_uid = request.clone();
        other_uid.pod.as_mut().unwrap().uid = "another".into();
        let refused = reports.token(other_uid).await.unwrap_err();
        assert!(matches!(refused, ReportError::Refused(_)), "{refused}");
        let elsewhere = Reports::new(api.clone(), "elsewhere");
        let refused = elsewhere.token(request.clone()).await.unwrap_err();
        assert!(matches!(refused, ReportError::Refused(_)), "{refused}");
        // The fake has no tokens: what counts is that the API was asked.
        let before = api.calls().len();
        let _ = reports.token(request).await;
        let asked = api.calls().pop().filter(|_| api.calls().len() > before);
        assert_eq!(asked.map(|call| call.name.subresource), Some("token"));
    }
}
