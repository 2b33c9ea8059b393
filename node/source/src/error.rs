//! Why a manifest is not a pod.

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It cannot be read.
    #[error("cannot be read")]
    Read(#[source] std::io::Error),
    /// It holds nothing.
    #[error("is empty")]
    Empty,
    /// It is larger than a manifest may be.
    #[error("is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// It is neither JSON nor YAML, or more than one document.
    #[error("is no JSON or YAML document: {0}")]
    Syntax(String),
    /// It is an object of another kind.
    #[error("is {found}, not a v1 Pod")]
    Kind {
        /// `apiVersion/kind` as it stands there.
        found: String,
    },
    /// A field has a wrong type.
    #[error("is no pod: {0}")]
    Type(String),
    /// Fields that contradict the rules of the API.
    #[error("is invalid: {}", .0.join("; "))]
    Invalid(Vec<String>),
    /// It names an object of the API, which a static pod cannot have.
    #[error("static pods may not reference {0}")]
    Reference(&'static str),
    /// The server that has the document.
    #[error("cannot be fetched: {0}")]
    Fetch(String),
}
