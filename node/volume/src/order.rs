//! Everything that is needed to make a pod's volumes, fetched side by side.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use swiftlet_model::control_plane::{
    ControlPlane, ControlPlaneError, ObjectRef, RefKind, TokenRequest,
};
use swiftlet_model::ids::PodKey;
use swiftlet_model::volumes::VolumeError;

use crate::claim::{self, Place};
use crate::files::{Object, Source, TokenFile};
use crate::payload::Fetched;
use crate::plan::{Amounts, Kind, Plan};
use crate::{PodFolders, failed, plan};

/// Shortest life of a token that can be asked for, in seconds. Source: validation of the API.
const TOKEN_EXPIRATION_S_MIN: i64 = 600;
/// The ConfigMap with the API's certificate, which goes with a token. Source:
/// `pkg/controller/certificates/rootcacertpublisher`.
const ROOT_CA: &str = "kube-root-ca.crt";
/// Its one key.
const CA: &str = "ca.crt";

/// A pod's volumes with their data.
pub(crate) struct Order {
    pub(crate) key: PodKey,
    pub(crate) pod: Arc<Pod>,
    pub(crate) amounts: Amounts,
    pub(crate) volumes: Vec<(Plan, Data)>,
}

/// What was fetched for a volume.
pub(crate) enum Data {
    /// It needs nothing.
    Nothing,
    /// For each source of files.
    Files(Vec<Fetched>),
    /// Where the claim's volume lies.
    Place(Place),
}

impl PodFolders {
    /// Nothing waits for anything else here: with one answer of the control plane all are there.
    pub(crate) async fn order(&self, pod: &Arc<Pod>) -> Result<Order, VolumeError> {
        let amounts = (self.amounts)();
        let plans = plan::volumes(pod, &amounts)?;
        let asked = plans.iter().map(|plan| self.data(plan, pod));
        let data = try_join_all(asked).await?;
        Ok(Order {
            key: PodKey::of(pod),
            pod: Arc::clone(pod),
            amounts,
            volumes: plans.into_iter().zip(data).collect(),
        })
    }

    async fn data(&self, plan: &Plan, pod: &Pod) -> Result<Data, VolumeError> {
        match &plan.kind {
            Kind::EmptyDir { .. } | Kind::HostPath { .. } => Ok(Data::Nothing),
            Kind::Files(files) => {
                let is_token = |it: &Source| matches!(it, Source::Token(_));
                let for_api = files.sources.iter().any(is_token);
                let asked = files.sources.iter();
                let asked = asked.map(|it| self.source(plan, it, pod, for_api));
                try_join_all(asked).await.map(Data::Files)
            }
            Kind::Claim { claim, .. } => self.claim(&plan.name, claim, pod).await.map(Data::Place),
        }
    }

    /// `for_api`: the volume has a token, and is for programs that speak with the API.
    async fn source(
        &self,
        plan: &Plan,
        source: &Source,
        pod: &Pod,
        for_api: bool,
    ) -> Result<Fetched, VolumeError> {
        match source {
            Source::Downward(_) => Ok(Fetched::Nothing),
            Source::Object(object) => self.object(&plan.name, object, for_api).await,
            Source::Token(file) => self.token(&plan.name, file, pod).await,
        }
    }

    async fn object(
        &self,
        volume: &str,
        object: &Object,
        for_api: bool,
    ) -> Result<Fetched, VolumeError> {
        let control_plane = self.control_plane(volume)?;
        let reference = &object.reference;
        let is_ca = reference.kind == RefKind::ConfigMap && reference.name == ROOT_CA;
        match control_plane.referenced(reference).await {
            Ok(None) if !object.optional => Err(missing(volume, reference)),
            Ok(data) => Ok(Fetched::Object(data)),
            Err(error) if for_api && is_ca && is_alone(control_plane, &error) => {
                let path = object.items.iter().flatten().next();
                Ok(Fetched::Lacking {
                    what: in_words(reference),
                    path: path.map_or_else(|| CA.to_owned(), |item| item.path.clone()),
                })
            }
            Err(error) => Err(failed(volume, &error)),
        }
    }

    async fn token(
        &self,
        volume: &str,
        file: &TokenFile,
        pod: &Pod,
    ) -> Result<Fetched, VolumeError> {
        let control_plane = self.control_plane(volume)?;
        let account = pod.spec.as_ref();
        let account = account.and_then(|spec| spec.service_account_name.clone());
        let request = TokenRequest {
            pod: PodKey::of(pod),
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            audience: file.audience.clone(),
            expiration_s: file.expiration_s.max(TOKEN_EXPIRATION_S_MIN),
        };
        let token = self.tokens.get(control_plane, self.clock.as_ref(), request);
        match token.await {
            Ok(token) => Ok(Fetched::Token(token)),
            Err(error) if is_alone(control_plane, &error) => Ok(Fetched::Lacking {
                what: format!("token \"{}\"", file.path),
                path: file.path.clone(),
            }),
            Err(error) => Err(failed(volume, &format!("failed to fetch token: {error}"))),
        }
    }

    async fn claim(
        &self,
        volume: &str,
        claim: &ObjectRef,
        pod: &Pod,
    ) -> Result<Place, VolumeError> {
        let object = self.whole(volume, claim).await?;
        let bound = claim::bound(volume, &claim.name, &object)?;
        let persistent = ObjectRef {
            kind: RefKind::PersistentVolume,
            namespace: String::new(),
            name: bound.volume.clone(),
        };
        // That the pod names it, the kubelet cannot know.
        self.references.add(&persistent, &PodKey::of(pod).uid);
        let object = self.whole(volume, &persistent).await?;
        let claimed = claim::place(volume, &bound, &object)?;
        if let Some(selector) = &claimed.node_affinity {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let node = self.own_node(volume, node.unwrap_or_default()).await?;
            claim::check_node(volume, selector, &node)?;
        }
        Ok(claimed.place)
    }

    /// This node as the API has it. No pod counts as its user: the kubelet needs it all the time.
    async fn own_node(&self, volume: &str, name: String) -> Result<Node, VolumeError> {
        let node = ObjectRef {
            kind: RefKind::Node,
            namespace: String::new(),
            name,
        };
        claim::node(volume, &self.whole(volume, &node).await?)
    }

    async fn whole(&self, volume: &str, object: &ObjectRef) -> Result<Bytes, VolumeError> {
        let control_plane = self.control_plane(volume)?;
        match control_plane.object(object).await {
            Ok(Some(object)) => Ok(object),
            Ok(None) => Err(missing(volume, object)),
            Err(error) => Err(failed(volume, &error)),
        }
    }

    fn control_plane(&self, volume: &str) -> Result<&dyn ControlPlane, VolumeError> {
        let control_plane = self.control_plane.as_deref();
        control_plane.ok_or_else(|| {
            let cause = "there is no control plane to ask for its data";
            failed(volume, &cause)
        })
    }
}

fn missing(volume: &str, object: &ObjectRef) -> VolumeError {
    VolumeError::Missing {
        volume: volume.to_owned(),
        what: in_words(object),
    }
}

fn in_words(object: &ObjectRef) -> String {
    format!("{} \"{}\"", object.kind.word(), object.name)
}

/// The control plane cannot be reached, and has not been since this program started.
fn is_alone(control_plane: &dyn ControlPlane, error: &ControlPlaneError) -> bool {
    matches!(error, ControlPlaneError::Disconnected) && !control_plane.ever_connected()
}
