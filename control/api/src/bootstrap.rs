//! What a new cluster has before anybody asks for it.

use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, ResourceName, resources};

use crate::api::ApiServer;
use crate::error;
use crate::options::WriteOptions;
use crate::route::{self, Target};
use crate::validate::SYSTEM_CLASSES;
use crate::verb::create;

/// Namespaces that Kubernetes makes itself.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// Makes the first namespaces and their default service accounts, the classes of the system's
    /// pods, and the Service of the API itself. What exists is left as it is.
    pub async fn bootstrap(&self) -> Result<(), ApiError> {
        for namespace in NAMESPACES {
            self.ensure(resources::NAMESPACES, "", namespace).await?;
            let account = self.ensure(resources::SERVICE_ACCOUNTS, namespace, "default");
            match account.await {
                // A namespace that ends takes nothing new; the cluster must start all the same.
                Err(error) if error.code() == 403 => {
                    tracing::warn!(namespace, %error, "no default service account");
                }
                other => other?,
            }
        }
        for (name, value, description) in SYSTEM_CLASSES {
            let class = json!({ "value": value, "description": description });
            self.ensure_with(resources::PRIORITY_CLASSES, "", name, class)
                .await?;
        }
        self.ensure_with(
            resources::SERVICES,
            "default",
            "kubernetes",
            self.own_service(),
        )
        .await
    }

    fn own_service(&self) -> Value {
        let options = self.options();
        json!({
            "metadata": { "labels": { "component": "apiserver", "provider": "kubernetes" } },
            "spec": {
                "type": "ClusterIP",
                "clusterIP": options.service_range.first().to_string(),
                "ports": [{
                    "name": "https",
                    "protocol": "TCP",
                    "port": 443,
                    "targetPort": options.server_port,
                }],
            },
        })
    }

    async fn ensure(
        &self,
        resource: ResourceName,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        self.ensure_with(resource, namespace, name, json!({})).await
    }

    async fn ensure_with(
        &self,
        resource: ResourceName,
        namespace: &str,
        name: &str,
        mut object: Value,
    ) -> Result<(), ApiError> {
        let target = Target {
            resource: route::resource(&resource).ok_or_else(error::unknown_path)?,
            namespace: namespace.into(),
            name: name.into(),
            subresource: "",
        };
        object["metadata"]["name"] = name.into();
        match create::create(self, &target, object, WriteOptions::default()).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }
}
