//! Tokens of service accounts, for pods of the node that asks.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use swiftlet_client::api::{ObjectName, resources};
use swiftlet_proto::v1::TokenRequest;

use super::{ReportError, Reports, decode, encode};

/// The service account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// What of a pod says which tokens its node may have; the rest is skipped, not decoded.
#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    service_account_name: Option<String>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Deserialize)]
struct Volume {
    projected: Option<Projected>,
}

#[derive(Deserialize)]
struct Projected {
    sources: Option<Vec<Source>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    service_account_token: Option<TokenSource>,
}

#[derive(Deserialize)]
struct TokenSource {
    audience: Option<String>,
}

impl Spec {
    /// Whether a volume of the pod projects a token for this audience; empty is the default one.
    fn wants(&self, audience: &str) -> bool {
        let volumes = self.volumes.iter().flatten();
        let projected = volumes.filter_map(|volume| volume.projected.as_ref());
        projected
            .flat_map(|projected| projected.sources.iter().flatten())
            .filter_map(|source| source.service_account_token.as_ref())
            .any(|token| token.audience.as_deref().unwrap_or_default() == audience)
    }
}

impl Reports {
    /// Asks the API for a token that is bound to a pod of this node; answers its status.
    ///
    /// As Kubernetes' NodeRestriction has it: a node gets tokens only for the accounts of pods that
    /// are bound to itself, and only for the audiences that their volumes name
    /// (plugin/pkg/admission/noderestriction).
    pub(crate) async fn token(&self, request: TokenRequest) -> Result<Bytes, ReportError> {
        let key = request.pod.clone().ok_or(ReportError::Malformed("pod"))?;
        let pod_name = ObjectName::new(resources::PODS, &key.namespace, &key.name);
        let pod = self.api.get(&pod_name).await?;
        let pod: Pod =
            serde_json::from_slice(&pod).map_err(|_| ReportError::Malformed("stored pod"))?;
        self.check_pod(&pod, &key.uid, &request)?;
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

    fn check_pod(&self, pod: &Pod, uid: &str, request: &TokenRequest) -> Result<(), ReportError> {
        if pod.metadata.uid != uid {
            return Err(ReportError::Refused("the pod has another uid"));
        }
        if pod.spec.node_name.as_deref() != Some(&*self.node) {
            return Err(ReportError::Refused("the pod is on another node"));
        }
        let named = pod.spec.service_account_name.as_deref();
        let named = named.filter(|name| !name.is_empty());
        if named.unwrap_or(DEFAULT_ACCOUNT) != request.service_account {
            return Err(ReportError::Refused("the pod has another service account"));
        }
        if !pod.spec.wants(&request.audience) {
            return Err(ReportError::Refused(
                "no volume of the pod names this audience",
            ));
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
        let sources = json!([
            {"serviceAccountToken": {"path": "token"}},
            {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
        ]);
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {
                "nodeName": "worker",
                "serviceAccountName": "robot",
                "volumes": [{"name": "tokens", "projected": {"sources": sources}}],
            },
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
        let other_audience = TokenRequest {
            audience: "bank".into(),
            ..request.clone()
        };
        let refused = reports.token(other_audience).await.unwrap_err();
        assert!(matches!(refused, ReportError::Refused(_)), "{refused}");
        // The fake has no tokens: what counts is that the API was asked.
        for audience in ["", "vault"] {
            let request = TokenRequest {
                audience: audience.into(),
                ..request.clone()
            };
            let before = api.calls().len();
            let _ = reports.token(request).await;
            let asked = api.calls().pop().filter(|_| api.calls().len() > before);
            assert_eq!(asked.map(|call| call.name.subresource), Some("token"));
        }
    }
}
