//! The NodeCredentials door: the files in which registry clients keep their credentials.
//!
//! Where they lie, and which counts before which: `pkg/credentialprovider/config.go` of Kubernetes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use swiftlet_model::BoxFuture;
use swiftlet_model::credentials::NodeCredentials;

/// The file of today, and its key in a Secret.
const CURRENT: (&str, &str) = ("config.json", ".dockerconfigjson");
/// The older one.
const LEGACY: (&str, &str) = (".dockercfg", ".dockercfg");
/// The folder of the file of today in someone's home.
const DOCKER: &str = ".docker";
/// Where a kubelet of Kubernetes keeps its file, wherever this program keeps its own.
const KUBELET_ROOT: &str = "/var/lib/kubelet";
/// Largest file: that of a Secret (`MaxSecretSize`).
const BYTES_MAX: u64 = 1 << 20;

/// Files in the places that are searched for them.
#[derive(Clone, Debug)]
pub struct CredentialFiles {
    /// Each with its key in a Secret.
    places: Vec<(PathBuf, &'static str)>,
}

impl CredentialFiles {
    /// For an agent with this folder of its own and this home: its own folder, the one in which it
    /// was started, its home, the machine's root.
    pub fn new(root: &Path, home: Option<&Path>) -> Self {
        let own = [root, Path::new(KUBELET_ROOT), Path::new("")];
        let homes = || home.into_iter().chain([Path::new("/")]);
        let mut places = Vec::new();
        for folder in own
            .iter()
            .map(|own| own.to_path_buf())
            .chain(homes().map(|home| home.join(DOCKER)))
        {
            places.push((folder.join(CURRENT.0), CURRENT.1));
        }
        for folder in own.into_iter().chain(homes()) {
            places.push((folder.join(LEGACY.0), LEGACY.1));
        }
        Self { places }
    }
}

impl NodeCredentials for CredentialFiles {
    fn documents(&self) -> BoxFuture<'_, Vec<BTreeMap<String, Vec<u8>>>> {
        let places = self.places.clone();
        Box::pin(async move {
            let read = move || places.iter().filter_map(read).collect();
            tokio::task::spawn_blocking(read).await.unwrap_or_default()
        })
    }
}

fn read((path, key): &(PathBuf, &'static str)) -> Option<BTreeMap<String, Vec<u8>>> {
    match content(path) {
        Ok(content) => Some([((*key).to_owned(), content)].into()),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                let path = path.display();
                tracing::warn!(%path, %error, "credentials of the node cannot be read");
            }
            None
        }
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut content)?;
    if u64::try_from(content.len()).unwrap_or(u64::MAX) > BYTES_MAX {
        return Err(io::Error::other("the file is too large"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn the_agents_own_file_comes_before_that_of_its_home_and_older_ones_come_last() {
        let dir = tempfile::tempdir().unwrap();
        let (root, home) = (dir.path().join("root"), dir.path().join("home"));
        fs::create_dir_all(home.join(DOCKER)).unwrap();
        fs::create_dir_all(&root).unwrap();
        let files = CredentialFiles::new(&root, Some(&home));
        let found = || async {
            let all = files.documents().await;
            let mine = all
                .into_iter()
                .flatten()
                .filter(|(_, text)| text.starts_with(b"mine"));
            mine.map(|(key, text)| (key, String::from_utf8(text).unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(found().await, []);
        fs::write(root.join(LEGACY.0), "mine 3").unwrap();
        fs::write(home.join(DOCKER).join(CURRENT.0), "mine 2").unwrap();
        fs::write(root.join(CURRENT.0), "mine 1").unwrap();
        let expected = [
            (CURRENT.1, "mine 1"),
            (CURRENT.1, "mine 2"),
            (LEGACY.1, "mine 3"),
        ];
        assert!(
            found()
                .await
                .iter()
                .map(|(key, text)| (key.as_str(), text.as_str()))
                .eq(expected)
        );
        fs::write(root.join(CURRENT.0), vec![b'm'; (1 << 20) + 1]).unwrap();
        assert_eq!(found().await.len(), 2, "one that is too large is left out");
    }
}
