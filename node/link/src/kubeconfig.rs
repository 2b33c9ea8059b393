//! The part of a kubeconfig file that a node needs: server, authority, client certificate.
//! Source: `client-go/tools/clientcmd/api/v1/types.go` of Kubernetes.

use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// The file, or one that it names, cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no kubeconfig.
    #[error("{path} is not a kubeconfig: {cause}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        cause: String,
    },
    /// A part is missing or cannot be decoded.
    #[error("kubeconfig {path}: {field} is missing or malformed")]
    Field {
        /// The file.
        path: PathBuf,
        /// Which part.
        field: &'static str,
    },
}

/// Where the control plane is and who the node is.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    /// `host:port` of the server.
    pub authority: String,
    /// The authority's certificates, PEM.
    pub ca_pem: Vec<u8>,
    /// The node's certificate chain, PEM.
    pub certificate_pem: Vec<u8>,
    /// The node's key, PEM.
    pub key_pem: Vec<u8>,
}

impl Kubeconfig {
    /// Reads the current context of a kubeconfig file.
    pub fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| KubeconfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let file: File = serde_saphyr::from_str(&text).map_err(|error| KubeconfigError::Parse {
            path: path.to_owned(),
            cause: error.to_string(),
        })?;
        Reader { path, file }.read()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    current_context: String,
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::struct_field_names, reason = "the names of the file")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
}

struct Reader<'a> {
    path: &'a Path,
    file: File,
}

impl Reader<'_> {
    fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        let File {
            current_context,
            clusters,
            contexts,
            users,
        } = &self.file;
        let context = contexts
            .iter()
            .find(|context| context.name == *current_context);
        let context = &context
            .ok_or_else(|| self.missing("current-context"))?
            .context;
        let cluster = clusters
            .iter()
            .find(|cluster| cluster.name == context.cluster);
        let cluster = &cluster.ok_or_else(|| self.missing("clusters"))?.cluster;
        let user = users.iter().find(|user| user.name == context.user);
        let user = &user.ok_or_else(|| self.missing("users"))?.user;
        Ok(Kubeconfig {
            authority: self.authority(&cluster.server)?,
            ca_pem: self.pem(
                "certificate-authority",
                cluster.certificate_authority.as_deref(),
                cluster.certificate_authority_data.as_deref(),
            )?,
            certificate_pem: self.pem(
                "client-certificate",
                user.client_certificate.as_deref(),
                user.client_certificate_data.as_deref(),
            )?,
            key_pem: self.pem(
                "client-key",
                user.client_key.as_deref(),
                user.client_key_data.as_deref(),
            )?,
        })
    }

    fn missing(&self, field: &'static str) -> KubeconfigError {
        KubeconfigError::Field {
            path: self.path.to_owned(),
            field,
        }
    }

    fn authority(&self, server: &str) -> Result<String, KubeconfigError> {
        let rest = server
            .strip_prefix("https://")
            .ok_or_else(|| self.missing("server"))?;
        let authority = rest.split('/').next().unwrap_or_default();
        if authority.is_empty() {
            return Err(self.missing("server"));
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(if has_port {
            authority.to_owned()
        } else {
            format!("{authority}:443")
        })
    }

    /// Embedded data win over a file, as in client-go.
    fn pem(
        &self,
        field: &'static str,
        file: Option<&Path>,
        data: Option<&str>,
    ) -> Result<Vec<u8>, KubeconfigError> {
        if let Some(data) = data {
            return BASE64.decode(data.trim()).map_err(|_| self.missing(field));
        }
        let file = file.ok_or_else(|| self.missing(field))?;
        // Relative to the kubeconfig's own folder, as in client-go.
        let path = self.path.parent().unwrap_or(Path::new(".")).join(file);
        std::fs::read(&path).map_err(|source| KubeconfigError::Read { path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "apiVersion: v1
kind: Config
current-context: here
clusters:
- name: c
  cluster: {server: 'https://127.0.0.1:6443', certificate-authority-data: Y2E=}
contexts:
- name: here
  context: {cluster: c, user: u}
users:
- name: u
  user: {client-certificate-data: Y2VydA==, client-key-data: a2V5}
";

    fn read(text: &str) -> Result<Kubeconfig, KubeconfigError> {
        let file: File = serde_saphyr::from_str(text).expect("yaml");
        Reader {
            path: Path::new("config"),
            file,
        }
        .read()
    }

    #[test]
    fn embedded_data_are_decoded() {
        let config = read(TEXT).expect("a full kubeconfig");
        assert_eq!(config.authority, "127.0.0.1:6443");
        assert_eq!(config.ca_pem, b"ca");
        assert_eq!(config.key_pem, b"key");
    }

    #[test]
    fn a_missing_part_is_named() {
        let error = read(&TEXT.replace("client-key-data: a2V5", "token: x")).expect_err("no key");
        assert!(error.to_string().contains("client-key"), "{error}");
        let error = read(&TEXT.replace("current-context: here", "current-context: there"));
        assert!(
            error
                .expect_err("no context")
                .to_string()
                .contains("current-context")
        );
    }

    #[test]
    fn the_port_of_https_is_the_default() {
        let config = read(&TEXT.replace("127.0.0.1:6443", "control.example")).expect("parsed");
        assert_eq!(config.authority, "control.example:443");
    }
}
