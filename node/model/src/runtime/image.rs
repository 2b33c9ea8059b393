//! Images as the runtime holds them.

use std::path::PathBuf;

/// An image that the runtime has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The runtime's id.
    pub id: String,
    /// Names with tags.
    pub tags: Vec<String>,
    /// Names with digests.
    pub digests: Vec<String>,
    /// Size on disk in bytes.
    pub size_bytes: u64,
    /// The user that the image names.
    pub user: ImageUser,
    /// The runtime wants to keep it (the sandbox's own image).
    pub pinned: bool,
}

/// The user that an image's processes have, if the pod names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ImageUser {
    /// The image names none: root.
    #[default]
    Unset,
    /// By number.
    Uid(i64),
    /// By a name that only the image's own files resolve.
    Name(String),
}

/// Who pulls.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct ImageAuth {
    /// User name.
    pub username: String,
    /// Password.
    pub password: String,
    /// Both, as a registry's `auth` field holds them.
    pub auth: String,
    /// The registry's address.
    pub server: String,
    /// OAuth identity token.
    pub identity_token: String,
    /// Registry token.
    pub registry_token: String,
}

impl std::fmt::Debug for ImageAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What it holds must not be in a log.
        f.debug_struct("ImageAuth")
            .field("server", &self.server)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// The file system that holds images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFilesystem {
    /// A folder on it.
    pub mount_point: PathBuf,
    /// Bytes that images use.
    pub used_bytes: u64,
    /// Inodes that images use.
    pub used_inodes: u64,
}

/// What a command in a container left behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    /// What it wrote to its standard output; the runtime cuts it at 16 MiB.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// Its exit code.
    pub exit_code: i32,
}
