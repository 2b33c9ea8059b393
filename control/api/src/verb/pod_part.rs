//! Parts of a pod that change through subresources of their own: `ephemeralcontainers` and
//! `resize` (Kubernetes: `pkg/registry/core/pod/strategy.go`). What else a client sends there is
//! dropped.

use serde_json::Value;
use swiftlet_client::api::ApiError;

use super::modify::Proposal;
use crate::error;
use crate::registry::FieldError;
use crate::route::Target;
use crate::strategy::keep;
use crate::validate;

/// A part of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodPart {
    /// `spec.ephemeralContainers`.
    EphemeralContainers,
    /// Resources of the containers.
    Resources,
}

impl PodPart {
    /// The part that a subresource stands for.
    pub(crate) fn of(subresource: &str) -> Option<Self> {
        match subresource {
            "ephemeralcontainers" => Some(Self::EphemeralContainers),
            "resize" => Some(Self::Resources),
            _ => None,
        }
    }

    /// The pod with the client's version of this part.
    pub(crate) fn complete(
        self,
        target: &Target,
        sent: &Value,
        current: &Value,
        based_on: Option<String>,
    ) -> Result<Proposal, ApiError> {
        let strategy = target.resource.strategy;
        let mut object = current.clone();
        match self {
            Self::EphemeralContainers => {
                if let (Some(new), Some(sent)) = (object.get_mut("spec"), sent.get("spec")) {
                    keep(new, sent, "ephemeralContainers");
                }
            }
            Self::Resources => take_resources(&mut object, sent),
        }
        strategy.apply_defaults(&mut object);
        strategy.prepare_for_update(&mut object, current);
        let mut errors: Vec<FieldError> = strategy.validate(&object);
        errors.extend(match self {
            Self::EphemeralContainers => validate::ephemeral_containers_update(&object, current),
            Self::Resources => validate::pod_resize(&object, current),
        });
        if !errors.is_empty() {
            return Err(error::invalid(target.resource, &target.name, &errors));
        }
        Ok(Proposal {
            object,
            based_on,
            warnings: Vec::new(),
        })
    }
}

/// Takes resources and their policies from containers of the same place and name. Where the lists
/// do not match they are taken as they are, and the validation says what is wrong.
fn take_resources(object: &mut Value, sent: &Value) {
    for list in ["containers", "initContainers"] {
        let Some(sent) = sent["spec"].get(list).and_then(Value::as_array) else {
            continue;
        };
        let Some(own) = object["spec"].get_mut(list).and_then(Value::as_array_mut) else {
            object["spec"][list] = sent.clone().into();
            continue;
        };
        let same = own.len() == sent.len()
            && own
                .iter()
                .zip(sent)
                .all(|(own, sent)| own["name"] == sent["name"]);
        if !same {
            own.clone_from(sent);
            continue;
        }
        for (own, sent) in own.iter_mut().zip(sent) {
            keep(own, sent, "resources");
            keep(own, sent, "resizePolicy");
        }
    }
}
