//! Where keys and certificates lie.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Identity, PkiError};

/// Makes a folder that only its owner may enter.
pub(super) fn create_folder(folder: &Path) -> Result<(), PkiError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| PkiError::File {
            path: folder.into(),
            source,
        })
}

/// Reads a certificate and its key; `None` if there is none yet.
pub(super) fn read(folder: &Path, name: &str) -> Result<Option<Identity>, PkiError> {
    let (certificate, key) = paths(folder, name);
    let Some(certificate_pem) = read_file(certificate)? else {
        return Ok(None);
    };
    let Some(key_pem) = read_file(key)? else {
        return Ok(None);
    };
    Ok(Some(Identity {
        certificate_pem,
        key_pem,
    }))
}

/// Writes a certificate and its key. The certificate comes last: it says that both are there.
pub(super) fn write(folder: &Path, name: &str, identity: &Identity) -> Result<(), PkiError> {
    let (certificate, key) = paths(folder, name);
    write_file(&key, &identity.key_pem, 0o600)?;
    write_file(&certificate, &identity.certificate_pem, 0o644)
}

/// Writes a file as a whole or not at all.
pub(super) fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let failed = |source| PkiError::File {
        path: path.into(),
        source,
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    // A left-over of a crash may have another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => (),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

/// The machine's name, if it has one that a certificate can hold.
pub(super) fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    (!name.is_empty() && name.bytes().all(plain)).then(|| name.to_string())
}

fn paths(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (
        folder.join(format!("{name}.crt")),
        folder.join(format!("{name}.key")),
    )
}

/// Reads a file; `None` if there is none.
pub(super) fn read_file(path: PathBuf) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { path, source }),
    }
}
