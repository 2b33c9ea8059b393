//! Manifests in a folder: one pod in each file.
//!
//! The kernel tells of changes; a slow look at everything is the net below. A file counts when its
//! writer has closed it or moved it in; the slow look leaves files alone that are still warm.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::sources::{Source, SourcePods};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::ManifestError;
use crate::manifest::{Origin, static_pod};
use crate::unique::unique;
use crate::watch::{Changes, FolderWatch};

/// How often everything is looked at (kubelet's `fileCheckFrequency`).
pub const FILE_CHECK_PERIOD: Duration = Duration::from_secs(20);
/// Largest manifest: that of an object of the API.
const MANIFEST_BYTES_MAX: usize = 3 << 20;
/// Most manifests of one folder: more than pods run on a node.
const MANIFESTS_MAX: usize = 1024;
/// A file that was changed within this time may still be written to; its writer's end is told by
/// the kernel.
const WARM: Duration = Duration::from_secs(2);

/// Where the manifests are.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// A folder, or a single file.
    pub path: PathBuf,
    /// The node's name.
    pub node_name: String,
    /// How often everything is looked at.
    pub check_period: Duration,
}

/// How a file was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed_ns: i128,
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        let changed_ns = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
        Self {
            inode: file.ino(),
            size: file.size(),
            changed_ns,
        }
    }

    fn is_warm(self, now: Timestamp) -> bool {
        let age = now.as_nanosecond() - self.changed_ns;
        (0..i128::try_from(WARM.as_nanos()).unwrap_or_default()).contains(&age)
    }
}

/// A file that was read.
struct Manifest {
    stamp: Stamp,
    /// The last pod that it was.
    pod: Option<Arc<Pod>>,
}

struct Folder {
    options: FolderOptions,
    /// The folder that is looked at: the parent of a single file.
    path: PathBuf,
    /// The one file that counts.
    only: Option<OsString>,
    manifests: BTreeMap<OsString, Manifest>,
}

/// Reads the manifests, and again whenever they change, until `shutdown`. The first list is sent
/// even if it is empty: then it is known that there is nothing.
pub async fn follow_folder(
    options: FolderOptions,
    lists: mpsc::Sender<SourcePods>,
    shutdown: CancellationToken,
) {
    let work = Folder::new(options).follow(lists);
    shutdown.run_until_cancelled_owned(work).await;
}

impl Folder {
    fn new(options: FolderOptions) -> Self {
        let single = options.path.is_file();
        let parent = options.path.parent().filter(|_| single);
        let name = options.path.file_name().filter(|_| single);
        Self {
            path: parent.unwrap_or(&options.path).to_owned(),
            only: name.map(OsStr::to_owned),
            options,
            manifests: BTreeMap::new(),
        }
    }

    async fn follow(mut self, lists: mpsc::Sender<SourcePods>) {
        let mut watch = None;
        let mut first = true;
        loop {
            if watch.is_none() {
                // The watch first: what changes after it is told.
                watch = self.watch();
            }
            let changed = self.look().await;
            if (changed || first) && lists.send(self.list()).await.is_err() {
                return;
            }
            first = false;
            // Until the next full look, single changes are followed.
            let full_look = tokio::time::sleep(self.options.check_period);
            tokio::pin!(full_look);
            while let Some(open) = &mut watch {
                let changes = tokio::select! {
                    biased;
                    changes = open.changes() => changes,
                    () = &mut full_look => break,
                };
                let changes = changes.unwrap_or_else(|error| {
                    tracing::warn!(%error, "manifests are not watched for a while");
                    Changes {
                        all: true,
                        ..Changes::default()
                    }
                });
                if changes.all {
                    watch = None;
                }
                if self.take(changes).await && lists.send(self.list()).await.is_err() {
                    return;
                }
            }
            if watch.is_none() {
                full_look.await;
            }
        }
    }

    fn watch(&self) -> Option<FolderWatch> {
        let folder = self.path.display();
        FolderWatch::new(&self.path)
            .inspect_err(|error| tracing::warn!(%folder, %error, "manifests are not watched"))
            .ok()
    }

    /// Takes single changes; whether the list has changed.
    async fn take(&mut self, changes: Changes) -> bool {
        let mut changed = false;
        for name in changes.names {
            changed |= self.counts(&name) && self.read(&name).await;
        }
        for name in changes.created {
            // A new file is read when its writer closes it; a link is complete at once.
            changed |= self.counts(&name) && self.is_link(&name).await && self.read(&name).await;
        }
        changed
    }

    async fn is_link(&self, name: &OsStr) -> bool {
        let entry = tokio::fs::symlink_metadata(self.path.join(name)).await;
        entry.is_ok_and(|entry| entry.is_symlink() || entry.nlink() > 1)
    }

    /// Whether the name is that of a manifest: editors and copying programs keep their work in
    /// files that begin with a dot.
    fn counts(&self, name: &OsStr) -> bool {
        let only = self.only.as_deref();
        !name.as_bytes().starts_with(b".") && only.is_none_or(|only| only == name)
    }

    /// Looks at everything; whether the list has changed.
    async fn look(&mut self) -> bool {
        let names = match names(&self.path).await {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                let folder = self.path.display();
                tracing::warn!(%folder, %error, "manifests cannot be listed; pods stay");
                return false;
            }
        };
        let mut changed = false;
        let gone = self
            .manifests
            .extract_if(.., |name, _| !names.contains(name));
        changed |= gone.filter(|(_, manifest)| manifest.pod.is_some()).count() > 0;
        for name in names
            .into_iter()
            .filter(|name| self.counts(name))
            .collect::<Vec<_>>()
        {
            if self.is_stale(&name).await {
                changed |= self.read(&name).await;
            }
        }
        changed
    }

    async fn is_stale(&self, name: &OsStr) -> bool {
        let Ok(file) = tokio::fs::metadata(self.path.join(name)).await else {
            return true;
        };
        let stamp = Stamp::of(&file);
        match self.manifests.get(name) {
            Some(known) if known.stamp == stamp => false,
            Some(_) => !stamp.is_warm(Timestamp::now()),
            None => true,
        }
    }

    /// Reads one file; whether the list has changed.
    async fn read(&mut self, name: &OsStr) -> bool {
        let path = self.path.join(name);
        let (stamp, text) = match content(&path).await {
            Ok(Some(read)) => read,
            Ok(None) => {
                let gone = self.manifests.remove(name);
                return gone.is_some_and(|manifest| manifest.pod.is_some());
            }
            Err(error) => {
                report(&path, &error);
                return false;
            }
        };
        let origin = Origin {
            source: Source::File,
            place: path.display().to_string(),
            node_name: self.options.node_name.clone(),
        };
        let before = self.manifests.get(name).and_then(|known| known.pod.clone());
        let read = static_pod(&text, &origin, Timestamp::now());
        let (pod, changed) = match read {
            Ok(pod) if before.as_ref().is_some_and(|before| is_same(before, &pod)) => {
                (before, false)
            }
            Ok(pod) => (Some(Arc::new(pod)), true),
            Err(error) => {
                report(&path, &error);
                (before, false)
            }
        };
        if self.manifests.len() >= MANIFESTS_MAX && !self.manifests.contains_key(name) {
            tracing::error!(path = %path.display(), "too many manifests, this one is ignored");
            return false;
        }
        self.manifests
            .insert(name.to_owned(), Manifest { stamp, pod });
        changed
    }

    /// The list, without pods that another file has already.
    fn list(&self) -> SourcePods {
        let pods = self.manifests.iter().filter_map(|(file, manifest)| {
            let place = file.to_string_lossy().into_owned();
            Some((place, manifest.pod.as_ref()?))
        });
        SourcePods {
            source: Source::File,
            pods: unique(pods),
        }
    }
}

/// Whether nothing but the time at which it was seen differs.
fn is_same(before: &Pod, pod: &Pod) -> bool {
    let mut meta = pod.metadata.clone();
    let seen = swiftlet_model::sources::CONFIG_SEEN;
    let then = before
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(seen));
    if let (Some(all), Some(then)) = (&mut meta.annotations, then) {
        all.insert(seen.to_owned(), then.clone());
    }
    before.spec == pod.spec && before.metadata == meta
}

fn report(path: &Path, error: &ManifestError) {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let cause = cause.unwrap_or_default();
    tracing::error!(path = %path.display(), %error, cause, "manifest not used");
}

async fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut entries = tokio::fs::read_dir(folder).await?;
    let mut names = Vec::new();
    while let Some(entry) = entries.next_entry().await? {
        names.push(entry.file_name());
    }
    names.sort_unstable();
    Ok(names)
}

/// A file and its stamp from before it was read; `None` if there is no such file. Folders and
/// devices are none.
async fn content(path: &Path) -> Result<Option<(Stamp, Vec<u8>)>, ManifestError> {
    let file = match tokio::fs::metadata(path).await {
        Ok(file) if file.is_file() => file,
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ManifestError::Read(error)),
    };
    if usize::try_from(file.size()).unwrap_or(usize::MAX) > MANIFEST_BYTES_MAX {
        let limit_bytes = MANIFEST_BYTES_MAX;
        return Err(ManifestError::TooLarge { limit_bytes });
    }
    match tokio::fs::read(path).await {
        Ok(text) => Ok(Some((Stamp::of(&file), text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(ManifestError::Read(error)),
    }
}
