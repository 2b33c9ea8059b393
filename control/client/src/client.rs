//! Kubernetes' verbs on typed objects.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{
    Api, DeleteParameters, ObjectName, PatchKind, ResourceName, Selection, resources,
};
use crate::error::ClientError;

/// A type of Kubernetes object.
pub trait Object:
    k8s_openapi::Metadata<Ty = ObjectMeta>
    + Serialize
    + DeserializeOwned
    + Clone
    + Send
    + Sync
    + 'static
{
    /// Its resource.
    const RESOURCE: ResourceName = ResourceName {
        group: Self::GROUP,
        version: Self::VERSION,
        plural: Self::URL_PATH_SEGMENT,
    };

    /// `metadata.name`, or empty.
    fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`, or empty.
    fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.uid`, or empty.
    fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    /// `metadata.resourceVersion` as the number that it is here; zero if it is missing.
    fn revision(&self) -> u64 {
        self.metadata()
            .resource_version
            .as_deref()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0)
    }

    /// Namespace and name.
    fn key(&self) -> ObjectKey {
        ObjectKey::new(self.namespace(), self.name())
    }

    /// Whether its deletion has begun.
    fn is_terminating(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }
}

impl<T> Object for T where
    T: k8s_openapi::Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// Namespace (empty for cluster-scoped objects) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ObjectKey {
    /// A key of its two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Typed access to the API door. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    api: Arc<dyn Api>,
}

impl Client {
    /// A client of this door.
    pub fn new(api: Arc<dyn Api>) -> Self {
        Self { api }
    }

    /// The door itself.
    pub fn api(&self) -> &Arc<dyn Api> {
        &self.api
    }

    /// Reads an object.
    pub async fn get<T: Object>(&self, namespace: &str, name: &str) -> Result<T, ClientError> {
        decode(
            &self
                .api
                .get(&ObjectName::new(T::RESOURCE, namespace, name))
                .await?,
        )
    }

    /// Lists all objects of a type (of one namespace), with the revision of the list.
    pub async fn list<T: Object>(
        &self,
        namespace: Option<&str>,
    ) -> Result<(Vec<T>, u64), ClientError> {
        let mut selection = Selection::all(T::RESOURCE);
        selection.namespace = namespace.map(str::to_owned);
        let list = self.api.list(&selection).await?;
        let items = list.items.iter().map(decode).collect::<Result<_, _>>()?;
        Ok((items, list.resource_version))
    }

    /// Creates an object; answers it as stored.
    pub async fn create<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        decode(&self.api.create(&name_of(object), encode(object)?).await?)
    }

    /// Replaces an object if it still has the resourceVersion that `object` bears.
    pub async fn update<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        decode(&self.api.update(&name_of(object), encode(object)?).await?)
    }

    /// Replaces an object's status, under the same condition.
    pub async fn update_status<T: Object>(&self, object: &T) -> Result<T, ClientError> {
        self.update_subresource(object, "status").await
    }

    /// Writes another subresource, such as `finalize`.
    pub async fn update_subresource<T: Object>(
        &self,
        object: &T,
        subresource: &'static str,
    ) -> Result<T, ClientError> {
        let name = name_of(object).with_subresource(subresource);
        decode(&self.api.update(&name, encode(object)?).await?)
    }

    /// Patches an object.
    pub async fn patch<T: Object>(
        &self,
        key: &ObjectKey,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<T, ClientError> {
        let name = ObjectName::new(T::RESOURCE, &key.namespace, &key.name);
        decode(
            &self
                .api
                .patch(&name, kind, encode_value::<T, _>(patch)?)
                .await?,
        )
    }

    /// Patches an object's status.
    pub async fn patch_status<T: Object>(
        &self,
        key: &ObjectKey,
        kind: PatchKind,
        patch: &Value,
    ) -> Result<T, ClientError> {
        let name = ObjectName::status(T::RESOURCE, &key.namespace, &key.name);
        decode(
            &self
                .api
                .patch(&name, kind, encode_value::<T, _>(patch)?)
                .await?,
        )
    }

    /// Deletes an object, or begins its graceful deletion. What the API answers depends on which of
    /// the two it was, and is of no use to a controller.
    pub async fn delete<T: Object>(
        &self,
        key: &ObjectKey,
        parameters: DeleteParameters,
    ) -> Result<(), ClientError> {
        let name = ObjectName::new(T::RESOURCE, &key.namespace, &key.name);
        self.api.delete(&name, parameters).await?;
        Ok(())
    }

    /// Binds a pod to a node.
    pub async fn bind(&self, pod: &Pod, node: &str) -> Result<(), ClientError> {
        let name = ObjectName::new(resources::PODS, pod.namespace(), pod.name());
        let binding = Binding {
            metadata: ObjectMeta {
                name: pod.metadata.name.clone(),
                namespace: pod.metadata.namespace.clone(),
                // The uid makes the binding fail when the pod has been replaced by another one.
                uid: pod.metadata.uid.clone(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".to_owned()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let body = encode_value::<Binding, _>(&binding)?;
        self.api
            .create(&name.with_subresource("binding"), body)
            .await?;
        Ok(())
    }
}

/// A deletion of exactly this object and no successor of the same name.
pub fn delete_exactly<T: Object>(object: &T) -> DeleteParameters {
    DeleteParameters {
        uid: object.metadata().uid.clone(),
        ..DeleteParameters::default()
    }
}

/// Decodes an object as the API encodes it.
pub fn decode<T: Object>(bytes: &Bytes) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| ClientError::Decode {
        kind: T::KIND,
        cause: error.to_string(),
    })
}

fn encode<T: Object>(object: &T) -> Result<Bytes, ClientError> {
    encode_value::<T, T>(object)
}

fn encode_value<T: k8s_openapi::Resource, V: Serialize>(value: &V) -> Result<Bytes, ClientError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| ClientError::Encode {
            kind: T::KIND,
            cause: error.to_string(),
        })
}

fn name_of<T: Object>(object: &T) -> ObjectName {
    ObjectName::new(T::RESOURCE, object.namespace(), object.name())
}
