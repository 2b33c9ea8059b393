//! Where the programs are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program of this project: beside the running one, or in the folder above it (test programs lie
/// in `deps`).
pub fn ours(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folders = here.ancestors().skip(1).take(2);
    let found = folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!(
            "{name} is not built: cargo build --workspace ({})",
            here.display()
        )
    })
}

/// A static program of this project, as `make static` puts it into `target/static`.
pub fn ours_static(name: &str) -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let found = here
        .ancestors()
        .map(|folder| folder.join("static").join(name));
    let found = found.take(4).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not built: make static ({})", here.display()))
}

/// Whatever `kubectl` is first on the path.
pub fn kubectl() -> Result<PathBuf> {
    on_path("kubectl").context("no kubectl on the path: apt-get install kubernetes-client")
}

/// Every kubectl of this machine by version (`1.27`), the one on the path included.
pub fn kubectls() -> Result<Vec<(String, PathBuf)>> {
    let first = kubectl()?;
    let mut found = vec![(version_of(&first)?, first.clone())];
    // Some packages bring one program per version beside each other, as `kubectl.1.NN`.
    for folder in package_folders(&first) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(version) = name.strip_prefix("kubectl.") else {
                continue;
            };
            let is_version = version.split('.').all(|part| part.parse::<u32>().is_ok());
            if is_version && !found.iter().any(|(known, _)| known == version) {
                found.push((version.to_owned(), entry.path()));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn package_folders(kubectl: &Path) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(
        kubectl
            .canonicalize()
            .ok()
            .and_then(|path| Some(path.parent()?.to_owned())),
    );
    for package in ["kubectl", "google-cloud-cli"] {
        let Ok(output) = Command::new("dpkg").args(["-L", package]).output() else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let programs = text.lines().filter(|line| line.contains("/kubectl.1."));
        folders.extend(programs.filter_map(|line| Some(Path::new(line).parent()?.to_owned())));
    }
    folders.sort();
    folders.dedup();
    folders
}

fn version_of(kubectl: &Path) -> Result<String> {
    let output = Command::new(kubectl)
        .args(["version", "--client", "-o", "json"])
        .output()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let version = &version["clientVersion"];
    match (version["major"].as_str(), version["minor"].as_str()) {
        (Some(major), Some(minor)) => Ok(format!("{major}.{}", minor.trim_end_matches('+'))),
        _ => bail!("{} does not tell its version", kubectl.display()),
    }
}

/// A program on the path.
pub fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}
