//! What can go wrong for a client of the API.

use crate::api::ApiError;

/// What can go wrong for a client of the API.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The API refused.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The API's answer is not an object of the expected type.
    #[error("cannot decode {kind}: {cause}")]
    Decode {
        /// The expected kind.
        kind: &'static str,
        /// What the decoder said.
        cause: String,
    },
    /// The object cannot be written as JSON.
    #[error("cannot encode {kind}: {cause}")]
    Encode {
        /// The object's kind.
        kind: &'static str,
        /// What the encoder said.
        cause: String,
    },
}

impl ClientError {
    /// The API's refusal, if it is one.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            Self::Decode { .. } | Self::Encode { .. } => None,
        }
    }

    /// No such object.
    pub fn is_not_found(&self) -> bool {
        self.api().is_some_and(ApiError::is_not_found)
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.api().is_some_and(ApiError::is_already_exists)
    }

    /// The object changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.api().is_some_and(ApiError::is_conflict)
    }

    /// Whether the same call may succeed later without anyone changing it: the server is busy, gone
    /// or broken, or somebody else was faster.
    pub fn is_retryable(&self) -> bool {
        self.api().is_some_and(|error| {
            error.is_conflict() || matches!(error.code(), 408 | 429) || error.code() >= 500
        })
    }
}
