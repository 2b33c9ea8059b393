//! Container logs as files: which pods have some, how large they are, and what rotation does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use swiftlet_model::BoxFuture;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::logs::{ContainerLogs, LogError};

use crate::PodFolders;

impl ContainerLogs for PodFolders {
    fn pods(&self) -> BoxFuture<'_, Result<Vec<PodKey>, LogError>> {
        let folders = self.folders.clone();
        Box::pin(blocking(move || {
            let names = folders.log_names();
            let names = names.map_err(|error| failed("list", &folders.logs, &error))?;
            Ok(names.iter().filter_map(|name| key_of(name)).collect())
        }))
    }

    fn sizes(&self, logs: Vec<PathBuf>) -> BoxFuture<'_, Result<Vec<Option<u64>>, LogError>> {
        Box::pin(blocking(move || logs.iter().map(|log| size(log)).collect()))
    }

    fn made_of<'a>(&'a self, log: &'a Path) -> BoxFuture<'a, Result<Vec<String>, LogError>> {
        let log = log.to_owned();
        Box::pin(blocking(move || {
            made_of(&log).map_err(|error| failed("list", &log, &error))
        }))
    }

    fn remove<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        let file = file.to_owned();
        Box::pin(blocking(move || match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("remove", &file, &error))
            }
            _ => Ok(()),
        }))
    }

    fn compress<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        let file = file.to_owned();
        Box::pin(blocking(move || {
            compress(&file).map_err(|error| failed("compress", &file, &error))
        }))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path) -> BoxFuture<'a, Result<(), LogError>> {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::pin(blocking(move || {
            rename(&from, &to).map_err(|error| failed("rename", &from, &error))
        }))
    }
}

/// The pod whose folder has this name, `<namespace>_<name>_<uid>`: no part has an underscore.
fn key_of(folder: &str) -> Option<PodKey> {
    let parts: Vec<&str> = folder.split('_').collect();
    let [namespace, name, uid] = parts.as_slice() else {
        return None;
    };
    let whole = ![namespace, name, uid].iter().any(|part| part.is_empty());
    whole.then(|| PodKey {
        namespace: (*namespace).to_owned(),
        name: (*name).to_owned(),
        uid: PodUid::from(*uid),
    })
}

fn size(log: &Path) -> Result<Option<u64>, LogError> {
    match fs::metadata(log) {
        Ok(file) => Ok(Some(file.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("look at", log, &error)),
    }
}

fn made_of(log: &Path) -> io::Result<Vec<String>> {
    let (Some(folder), Some(name)) = (log.parent(), log.file_name()) else {
        return Ok(Vec::new());
    };
    let beginning = format!("{}.", name.to_string_lossy());
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        // The folder may have gone with its pod.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name().into_string();
        found.extend(name.ok().filter(|name| name.starts_with(&beginning)));
    }
    Ok(found)
}

/// Whole or not at all: the new file gets its name when all is in it, and then the old one goes.
fn compress(file: &Path) -> io::Result<()> {
    let source = File::open(file)?;
    let mode = source.metadata()?.permissions().mode();
    let unfinished = with_ending(file, ".tmp");
    let mut open = OpenOptions::new();
    let open = open.write(true).create(true).truncate(true).mode(mode);
    let target = BufWriter::new(open.open(&unfinished)?);
    let mut gzip = GzEncoder::new(target, Compression::default());
    let written = io::copy(&mut BufReader::new(source), &mut gzip)
        .and_then(|_| gzip.finish())
        .and_then(|mut target| target.flush())
        .and_then(|()| fs::rename(&unfinished, with_ending(file, ".gz")));
    if let Err(error) = written {
        // Best effort: the next rotation removes what is left.
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    fs::remove_file(file)
}

fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Nobody but this program and the runtime makes files there, and the runtime makes none of this
/// name: looking first is enough.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(to).is_ok() {
        let words = format!("{} is there already", to.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, words));
    }
    fs::rename(from, to)
}

/// On a thread that may wait for a disk.
async fn blocking<T: Send + 'static>(
    effect: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    let answer = tokio::task::spawn_blocking(effect).await;
    answer.unwrap_or_else(|error| Err(failed("look at", Path::new(""), &error)))
}

fn failed(what: &'static str, path: &Path, cause: &dyn std::fmt::Display) -> LogError {
    LogError {
        what,
        path: path.to_owned(),
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn a_compressed_log_holds_what_the_log_held_and_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log.20240102-150405");
        let text = "a line of a log\n".repeat(10_000);
        fs::write(&log, &text).unwrap();
        fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap();
        // What was left of the last time is written over.
        fs::write(with_ending(&log, ".tmp"), "half").unwrap();
        compress(&log).unwrap();
        assert_eq!(names(folder.path()), ["0.log.20240102-150405.gz"]);
        let gz = with_ending(&log, ".gz");
        let mut found = String::new();
        let mut reader = GzDecoder::new(File::open(&gz).unwrap());
        reader.read_to_string(&mut found).unwrap();
        assert_eq!(found, text);
        assert!(fs::metadata(&gz).unwrap().len() < 1 << 12);
    }

    #[test]
    fn a_log_is_never_renamed_over_another() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("0.log"), folder.path().join("0.log.1"));
        fs::write(&one, "one").unwrap();
        rename(&one, &two).unwrap();
        fs::write(&one, "new").unwrap();
        assert!(rename(&two, &one).is_err());
        assert_eq!(fs::read_to_string(&one).unwrap(), "new");
        assert_eq!(made_of(&one).unwrap(), ["0.log.1"]);
        let gone = folder.path().join("gone/0.log");
        assert!(
            made_of(&gone).unwrap().is_empty(),
            "nothing is made of what is not there"
        );
        assert_eq!(size(&one).unwrap(), Some(3));
        assert_eq!(size(&folder.path().join("1.log")).unwrap(), None);
    }

    #[test]
    fn a_log_folder_tells_its_pod() {
        let key = key_of("default_web-0_c0ffee-1").unwrap();
        assert_eq!(key.to_string(), "default/web-0(c0ffee-1)");
        for other in ["default", "a_b", "a__c", "a_b_c_d", "containers"] {
            assert_eq!(key_of(other), None, "{other}");
        }
    }
}
