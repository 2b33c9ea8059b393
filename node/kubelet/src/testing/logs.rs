//! Log files in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use swiftlet_model::ids::PodKey;
use swiftlet_model::logs::{ContainerLogs, LogError};

/// Log files.
#[derive(Debug, Default)]
pub(crate) struct FakeLogs {
    /// Their sizes.
    pub(crate) files: Mutex<BTreeMap<PathBuf, u64>>,
    /// Pods with a log folder.
    pub(crate) pods: Mutex<BTreeSet<PodKey>>,
}

impl FakeLogs {
    pub(crate) fn names(&self) -> Vec<String> {
        let files = self.files.lock().unwrap();
        let names = files.keys().filter_map(|path| path.file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }

    fn with_ending(path: &Path, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}{ending}", path.display()))
    }
}

impl ContainerLogs for FakeLogs {
    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodKey>, LogError>> {
        async { Ok(self.pods.lock().unwrap().iter().cloned().collect()) }.boxed()
    }

    fn sizes(&self, logs: Vec<PathBuf>) -> BoxFuture<'_, Result<Vec<Option<u64>>, LogError>> {
        async move {
            let files = self.files.lock().unwrap();
            Ok(logs.iter().map(|log| files.get(log).copied()).collect())
        }
        .boxed()
    }

    fn made_of<'a>(&'a self, log: &'a Path) -> BoxFuture<'a, Result<Vec<String>, LogError>> {
        async move {
            let beginning = format!("{}.", log.display());
            let files = self.files.lock().unwrap();
            let all = files
                .keys()
                .filter(|path| path.display().to_string().starts_with(&beginning));
            let names = all.filter_map(|path| path.file_name());
            Ok(names
                .map(|name| name.to_string_lossy().into_owned())
                .collect())
        }
        .boxed()
    }

    fn remove<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        async move {
            self.files.lock().unwrap().remove(file);
            Ok(())
        }
        .boxed()
    }

    fn compress<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        async move {
            let mut files = self.files.lock().unwrap();
            let size = files.remove(file).unwrap_or_default();
            files.insert(Self::with_ending(file, ".gz"), size / 10);
            Ok(())
        }
        .boxed()
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        async move {
            let mut files = self.files.lock().unwrap();
            assert!(!files.contains_key(to), "never over another");
            let size = files.remove(from).ok_or_else(|| LogError {
                what: "rename",
                path: from.to_owned(),
                cause: "not there".to_owned(),
            })?;
            files.insert(to.to_owned(), size);
            Ok(())
        }
        .boxed()
    }
}
