//! Changes on disk and of sysctls: as `std::fs` does them, and each a place to die at in tests.
//!
//! Nothing else in this crate changes a file, which a test checks.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use crate::failpoint;

/// Makes the folder and those above it.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    around("create", path, || fs::create_dir_all(path))
}

/// Makes an empty file, or empties it.
pub(crate) fn create(path: &Path) -> io::Result<()> {
    around("create", path, || File::create(path).map(drop))
}

/// Makes a file that must not be there yet; then writes into it.
pub(crate) fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = around("create", path, || {
        OpenOptions::new().write(true).create_new(true).open(path)
    })?;
    around("fill", path, || file.write_all(text))
}

/// Writes a file, or a sysctl.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> io::Result<()> {
    around("write", path, || fs::write(path, text))
}

/// Gives a file another name, in place of the file that has it.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    around("rename", to, || fs::rename(from, to))
}

/// Removes a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    around("remove", path, || fs::remove_file(path))
}

/// Removes an empty folder.
pub(crate) fn remove_dir(path: &Path) -> io::Result<()> {
    around("remove", path, || fs::remove_dir(path))
}

fn around<T>(
    what: &'static str,
    path: &Path,
    change: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let step = format_args!("{what} {}", path.display());
    failpoint::pass("before", &step);
    let outcome = change();
    failpoint::pass("after", &step);
    outcome
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// What changes a file without a place to die at.
    const CHANGES: [&str; 6] = [
        "fs::write(",
        "fs::remove_",
        "fs::rename(",
        "fs::create_dir",
        "File::create(",
        "OpenOptions",
    ];

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // The shim keeps nothing, and tests do as they like.
            match name {
                "disk.rs" | "failpoint.rs" | "tests.rs" | "shim" => (),
                _ if path.is_dir() => sources(&path, found),
                _ => found.push(path),
            }
        }
    }

    #[test]
    fn nothing_else_changes_a_file() {
        let mut files = Vec::new();
        sources(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
            &mut files,
        );
        assert!(files.len() > 20, "{files:?}");
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for change in CHANGES {
                let found = code.lines().find(|line| line.contains(change));
                assert_eq!(found, None, "{} goes past disk.rs", file.display());
            }
        }
    }
}
