//! The host ports of each sandbox as a file: `<dataDir>/hostports/<container id>`, in JSON.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::SystemTime;

use super::Ports;
use crate::disk;
use crate::error::{NetworkError, file_error};

/// A file that is being written; no container id begins like this.
const NEW: &str = ".new";

/// A file of a sandbox.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) container_id: String,
    pub(super) ports: Ports,
    pub(super) written: SystemTime,
}

pub(super) fn load(folder: &Path) -> Result<Vec<Found>, NetworkError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file_error("read", folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file_error("read", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == NEW {
            continue;
        }
        let path = entry.path();
        let text = fs::read(&path).map_err(file_error("read", &path))?;
        let written = entry.metadata().and_then(|file| file.modified());
        let written = written.unwrap_or(SystemTime::UNIX_EPOCH);
        match serde_json::from_slice(&text) {
            Ok(ports) => found.push(Found {
                container_id: name,
                ports,
                written,
            }),
            // Only a disk that lies makes such a file: its pod loses its ports, not the node.
            Err(error) => tracing::warn!(path = %path.display(), %error, "no host ports"),
        }
    }
    Ok(found)
}

pub(super) fn save(folder: &Path, container_id: &str, ports: &Ports) -> Result<(), NetworkError> {
    disk::create_dir_all(folder).map_err(file_error("create", folder))?;
    let (new, path) = (folder.join(NEW), folder.join(container_id));
    let text = serde_json::to_vec(ports).map_err(NetworkError::Decode)?;
    disk::write(&new, text).map_err(file_error("write", &new))?;
    disk::rename(&new, &path).map_err(file_error("write", &path))
}

pub(super) fn remove(folder: &Path, container_id: &str) -> Result<(), NetworkError> {
    let path = folder.join(container_id);
    match disk::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(file_error("remove", &path)(error))
        }
        _ => Ok(()),
    }
}
