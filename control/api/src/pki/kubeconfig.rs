//! A kubeconfig with everything in it.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Identity, PkiError, files};

/// What a kubeconfig says.
pub struct Kubeconfig<'a> {
    pub(super) server: &'a str,
    pub(super) ca_pem: &'a str,
    pub(super) user: &'a str,
    pub(super) identity: &'a Identity,
}

impl Kubeconfig<'_> {
    /// The file's text.
    pub fn text(&self) -> String {
        let user = self.user;
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: swiftlet\n  cluster:\n    \
             server: {server}\n    certificate-authority-data: {ca}\nusers:\n- name: \"{user}\"\n  \
             user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n\
             contexts:\n- name: \"{user}@swiftlet\"\n  context:\n    cluster: swiftlet\n    \
             user: \"{user}\"\ncurrent-context: \"{user}@swiftlet\"\npreferences: {{}}\n",
            server = self.server,
            ca = STANDARD.encode(self.ca_pem),
            certificate = STANDARD.encode(&self.identity.certificate_pem),
            key = STANDARD.encode(&self.identity.key_pem),
        )
    }

    /// Writes the file, readable for its owner alone.
    pub fn write(&self, path: &Path) -> Result<(), PkiError> {
        files::write_file(path, &self.text(), 0o600)
    }
}
