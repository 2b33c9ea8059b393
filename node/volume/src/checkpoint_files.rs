//! The Checkpoints door: one file for each name in one folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use swiftlet_model::BoxFuture;
use swiftlet_model::checkpoints::{CheckpointError, Checkpoints};

/// Mode of the files.
const OWNER_ONLY: u32 = 0o600;

/// Ending of a file that is being written; one that a crash left is written over.
const UNFINISHED: &str = ".unfinished";

/// Checkpoints below one folder.
#[derive(Clone, Debug)]
pub struct CheckpointFiles {
    folder: PathBuf,
}

impl CheckpointFiles {
    /// In this folder, which is made when the first one is saved.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        name: &str,
        effect: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> Result<T, CheckpointError> {
        let failed = |cause: String| CheckpointError {
            name: name.to_owned(),
            cause,
        };
        if name.contains(['/', '\0']) || name.starts_with('.') || name.ends_with(UNFINISHED) {
            return Err(failed("not a name for a file".to_owned()));
        }
        let folder = self.folder.clone();
        let done = tokio::task::spawn_blocking(move || effect(&folder)).await;
        done.map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))
    }
}

impl Checkpoints for CheckpointFiles {
    fn load<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, CheckpointError>> {
        let file = name.to_owned();
        Box::pin(self.blocking(name, move |folder| optional(fs::read(folder.join(file)))))
    }

    fn save<'a>(
        &'a self,
        name: &'a str,
        content: &'a [u8],
    ) -> BoxFuture<'a, Result<(), CheckpointError>> {
        let (file, content) = (name.to_owned(), content.to_vec());
        Box::pin(self.blocking(name, move |folder| replace(folder, &file, &content)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), CheckpointError>> {
        let file = name.to_owned();
        Box::pin(self.blocking(name, move |folder| {
            optional(fs::remove_file(folder.join(file))).map(|_| ())
        }))
    }

    fn load_all<'a>(
        &'a self,
        prefix: &'a str,
    ) -> BoxFuture<'a, Result<BTreeMap<String, Vec<u8>>, CheckpointError>> {
        let wanted = prefix.to_owned();
        Box::pin(self.blocking(prefix, move |folder| all(folder, &wanted)))
    }
}

fn optional<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Written beside, brought to disk, renamed, and the folder brought to disk: whole at any time.
fn replace(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let unfinished = folder.join(format!("{name}{UNFINISHED}"));
    // Pods' specifications may hold what is nobody else's business.
    let mut options = File::options();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(OWNER_ONLY);
    let mut file = options.open(&unfinished)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&unfinished, folder.join(name))?;
    File::open(folder)?.sync_all()
}

fn all(folder: &Path, prefix: &str) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let Some(entries) = optional(fs::read_dir(folder))? else {
        return Ok(found);
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let whole = name.starts_with(prefix) && !name.ends_with(UNFINISHED);
        if whole && entry.file_type()?.is_file() {
            found.extend(optional(fs::read(entry.path()))?.map(|content| (name, content)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_saved_last_is_loaded_and_half_a_file_never() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::new(folder.path().join("checkpoints"));
        assert_eq!(files.load("a").await.unwrap(), None);
        assert!(files.load_all("").await.unwrap().is_empty());
        files.save("a", b"1").await.unwrap();
        files.save("a", b"2").await.unwrap();
        files.save("pod-b", b"3").await.unwrap();
        fs::write(folder.path().join("checkpoints/pod-c.unfinished"), "x").unwrap();
        assert_eq!(files.load("a").await.unwrap().unwrap(), b"2");
        let pods: Vec<_> = files.load_all("pod-").await.unwrap().into_keys().collect();
        assert_eq!(pods, ["pod-b"]);
        files.remove("a").await.unwrap();
        files.remove("a").await.unwrap();
        assert_eq!(files.load("a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_name_does_not_lead_out_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let files = CheckpointFiles::new(folder.path().to_owned());
        for name in ["../x", "a/b", "..", ".hidden"] {
            assert!(files.save(name, b"1").await.is_err(), "{name}");
        }
    }
}
