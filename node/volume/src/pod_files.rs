//! Files of a pod beside its volumes: `/etc/hosts`, last words, ends of logs.
//!
//! ```text
//! <root>/pods/<uid>/etc-hosts
//! <root>/pods/<uid>/containers/<container>/<attempt>    what it wrote as its last words
//! ```

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use swiftlet_model::BoxFuture;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{PodFiles, VolumeError};

use crate::folders::Folders;
use crate::{PodFolders, blocking, failed, log_lines};

/// The node's own table of hosts.
const NODE_HOSTS: &str = "/etc/hosts";
/// Largest table of hosts that is copied, in bytes: it is read into memory for each pod.
const NODE_HOSTS_BYTES_MAX: usize = 1 << 20;

/// Modes. Source: `ensureHostsFile` and `makeMounts` of kubelet. Any user may write last words.
pub(crate) const HOSTS_MODE: u32 = 0o644;
const TERMINATION_MODE: u32 = 0o666;

/// Attempts whose last words are kept. The status shows those of the last one.
const TERMINATION_LOGS_MAX: u32 = 8;

impl PodFiles for PodFolders {
    fn hosts_path(&self, pod: &PodUid) -> PathBuf {
        self.folders.hosts(pod)
    }

    fn hosts_file<'a>(
        &'a self,
        pod: &'a PodUid,
        content: &'a str,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        let (folders, pod, content) = (self.folders.clone(), pod.clone(), content.to_owned());
        Box::pin(blocking(move || {
            one_part(pod.as_str())?;
            let path = folders.hosts(&pod);
            let written = write_hosts(&path, &content);
            written.map_err(|error| at(&path, &error))?;
            Ok(path)
        }))
    }

    fn node_hosts(&self) -> BoxFuture<'_, Result<String, VolumeError>> {
        Box::pin(blocking(|| {
            let path = Path::new(NODE_HOSTS);
            end_of(path, NODE_HOSTS_BYTES_MAX)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|error| at(path, &error))
        }))
    }

    fn termination_log<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
    ) -> BoxFuture<'a, Result<PathBuf, VolumeError>> {
        let (folders, pod) = (self.folders.clone(), pod.clone());
        let container = container.to_owned();
        Box::pin(blocking(move || {
            let path = termination_path(&folders, &pod, &container, attempt)?;
            make_termination_log(&path).map_err(|error| at(&path, &error))?;
            if let Some(old) = attempt.checked_sub(TERMINATION_LOGS_MAX) {
                // Best effort: what stays goes with the pod.
                let _ = fs::remove_file(path.with_file_name(old.to_string()));
            }
            Ok(path)
        }))
    }

    fn termination_message<'a>(
        &'a self,
        pod: &'a PodUid,
        container: &'a str,
        attempt: u32,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>> {
        let (folders, pod) = (self.folders.clone(), pod.clone());
        let container = container.to_owned();
        Box::pin(blocking(move || {
            let path = termination_path(&folders, &pod, &container, attempt)?;
            let bytes = end_of(&path, bytes_max).map_err(|error| at(&path, &error))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }))
    }

    fn log_tail<'a>(
        &'a self,
        log: &'a Path,
        lines_max: usize,
        bytes_max: usize,
    ) -> BoxFuture<'a, Result<String, VolumeError>> {
        let log = log.to_owned();
        Box::pin(blocking(move || {
            let window = log_lines::window(lines_max, bytes_max);
            let bytes = end_of(&log, window).map_err(|error| at(&log, &error))?;
            let is_cut = bytes.len() == window;
            Ok(log_lines::tail(&bytes, is_cut, lines_max, bytes_max))
        }))
    }
}

fn at(path: &Path, error: &io::Error) -> VolumeError {
    failed("", &format!("{}: {error}", path.display()))
}

fn termination_path(
    folders: &Folders,
    pod: &PodUid,
    container: &str,
    attempt: u32,
) -> Result<PathBuf, VolumeError> {
    one_part(pod.as_str())?;
    let folder = folders.last_words(pod);
    Ok(folder.join(one_part(container)?).join(attempt.to_string()))
}

/// A name that leads to no other folder.
pub(crate) fn one_part(name: &str) -> Result<&str, VolumeError> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(name),
        _ => Err(failed("", &format!("\"{name}\" is not a name"))),
    }
}

/// A container may have made the file as large as it likes: what is too long is not read.
fn is_content(path: &Path, content: &[u8]) -> bool {
    let bytes_max = content.len() + 1;
    fs::metadata(path).is_ok_and(|file| file.len() == content.len() as u64)
        && end_of(path, bytes_max).is_ok_and(|found| found == content)
}

/// Written in place: a container has the file itself mounted and would not see another.
fn write_hosts(path: &Path, content: &str) -> io::Result<()> {
    if is_content(path, content.as_bytes()) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mut open = OpenOptions::new();
    let open = open.write(true).create(true).truncate(true);
    let mut file = open.mode(HOSTS_MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(HOSTS_MODE))?;
    file.write_all(content.as_bytes())
}

fn make_termination_log(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    let mut open = OpenOptions::new();
    let file = open.append(true).create(true).open(path)?;
    // The umask took part in the creation.
    file.set_permissions(Permissions::from_mode(TERMINATION_MODE))
}

/// The last bytes of a file; nothing if there is none.
fn end_of(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?,
    };
    let bytes_max = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let start = file.metadata()?.len().saturating_sub(bytes_max);
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
