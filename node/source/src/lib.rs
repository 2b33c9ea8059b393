//! Static pods: the pods of a node that come from no API.
//!
//! ```text
//!  folder ──inotify──▶ changed files ─┐                    ┌─▶ manifest: decode, default, validate
//!         ──slow look─▶ changed files ├─▶ pods of a source ┘
//!  URL    ──poll──────▶ document ─────┘        └─▶ SourcePods: the whole list, when it changed
//! ```
//! A manifest that cannot be used is named in the log, and the pod that it named before goes on.
//! Rules: `pkg/kubelet/config/{file,file_linux,http,common}.go`.
#![forbid(unsafe_code)]

mod defaults;
mod error;
mod folder;
mod http_document;
mod manifest;
mod references;
mod unique;
mod validate;
mod watch;

pub use error::ManifestError;
pub use folder::{FILE_CHECK_PERIOD, FolderOptions, follow_folder};
pub use http_document::{DocumentOptions, HTTP_CHECK_PERIOD, follow_document};
pub use manifest::{Origin, static_pod};
