//! What a new cluster has before anybody asks for it.

use serde_json::json;
use swiftlet_client::api::{ApiError, resources};

use crate::api::ApiServer;
use crate::error;
use crate::options::WriteOptions;
use crate::route::{self, Target};
use crate::verb::create;

/// Namespaces that Kubernetes makes itself.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// Makes the first namespaces and their default service accounts. What exists is left as it is.
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
        Ok(())
    }

    async fn ensure(
        &self,
        resource: swiftlet_client::api::ResourceName,
        namespace: &str,
        name: &str,
    ) -> Result<(), ApiError> {
        let target = Target {
            resource: route::resource(&resource).ok_or_else(error::unknown_path)?,
            namespace: namespace.into(),
            name: name.into(),
            subresource: "",
        };
        let object = json!({ "metadata": { "name": name } });
        match create::create(self, &target, object, WriteOptions::default()).await {
            Err(error) if !error.is_already_exists() => Err(error),
            _ => Ok(()),
        }
    }
}
