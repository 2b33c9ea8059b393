//! Why a container has no image, in the words of Kubernetes
//! (`pkg/kubelet/images/image_manager.go`, `types.go`, and `errors.go` of cri-api).

use swiftlet_model::events::ERR_IMAGE_NEVER_PULL;
use swiftlet_model::runtime::RuntimeError;

use crate::images::reference::ReferenceError;

/// The reason of a pull that failed.
const ERR_IMAGE_PULL: &str = "ErrImagePull";
/// The same, where the runtime says that the registry is to blame.
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// The same, where the runtime says that a signature is missing or wrong.
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";

/// The reason of a reference that is none.
const INVALID_IMAGE_NAME: &str = "InvalidImageName";
/// The reason where the runtime does not tell what it has.
const IMAGE_INSPECT_ERROR: &str = "ImageInspectError";

/// Why a container has no image.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ImageError {
    /// The reference is no reference.
    #[error("Failed to apply default image tag \"{image}\": {source}")]
    InvalidName {
        /// What the pod says.
        image: String,
        /// Why.
        source: ReferenceError,
    },
    /// The policy is `Never` and the image is not there.
    #[error("Container image \"{0}\" is not present with pull policy of Never")]
    NeverPull(String),
    /// The pull failed; in the runtime's words.
    #[error("{0}")]
    Pull(String),
    /// The registry does not serve.
    #[error("image pull failed for {image} because the registry is unavailable{more}")]
    RegistryUnavailable {
        /// The reference.
        image: String,
        /// What else the runtime says.
        more: String,
    },
    /// A signature is missing or wrong.
    #[error("image pull failed for {image} because the signature validation failed{more}")]
    SignatureValidation {
        /// The reference.
        image: String,
        /// What else the runtime says.
        more: String,
    },
    /// The runtime could not be asked.
    #[error("Failed to inspect image \"{image}\": {source}")]
    Inspect {
        /// The reference.
        image: String,
        /// Why.
        source: RuntimeError,
    },
}

impl ImageError {
    /// What a pull that failed with these words means: the runtime begins them with the reason if
    /// it knows one.
    pub(crate) fn of_pull(image: &str, words: String) -> Self {
        let image = image.to_owned();
        if let Some(more) = words.strip_prefix(REGISTRY_UNAVAILABLE) {
            let more = more.to_owned();
            return Self::RegistryUnavailable { image, more };
        }
        if let Some(more) = words.strip_prefix(SIGNATURE_VALIDATION_FAILED) {
            let more = more.to_owned();
            return Self::SignatureValidation { image, more };
        }
        Self::Pull(words)
    }

    /// The waiting reason of the container.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::InvalidName { .. } => INVALID_IMAGE_NAME,
            Self::NeverPull(_) => ERR_IMAGE_NEVER_PULL,
            Self::Pull(_) => ERR_IMAGE_PULL,
            Self::RegistryUnavailable { .. } => REGISTRY_UNAVAILABLE,
            Self::SignatureValidation { .. } => SIGNATURE_VALIDATION_FAILED,
            Self::Inspect { .. } => IMAGE_INSPECT_ERROR,
        }
    }

    /// Whether the wait before the next try is that of pulls.
    pub(crate) fn is_pull(&self) -> bool {
        !matches!(self, Self::Inspect { .. })
    }
}

/// Whether the reason is that of a pull which will be tried again.
pub(crate) fn is_failed_pull(reason: &str) -> bool {
    [
        ERR_IMAGE_PULL,
        REGISTRY_UNAVAILABLE,
        SIGNATURE_VALIDATION_FAILED,
    ]
    .contains(&reason)
}

/// Whether the reason is one of those why a container has no image.
pub(crate) fn is_of_image(reason: &str) -> bool {
    let others = [
        ERR_IMAGE_NEVER_PULL,
        INVALID_IMAGE_NAME,
        IMAGE_INSPECT_ERROR,
    ];
    is_failed_pull(reason) || others.contains(&reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_the_runtime_names_is_the_containers_reason() {
        let cases = [
            ("manifest unknown", "ErrImagePull", "manifest unknown"),
            (
                "RegistryUnavailable: try later",
                "RegistryUnavailable",
                "image pull failed for a because the registry is unavailable: try later",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for a because the signature validation failed",
            ),
        ];
        for (words, reason, message) in cases {
            let error = ImageError::of_pull("a", words.to_owned());
            assert_eq!(
                (error.reason(), error.to_string().as_str()),
                (reason, message)
            );
            assert!(is_failed_pull(error.reason()));
        }
        assert!(!is_failed_pull(ERR_IMAGE_NEVER_PULL));
    }
}
