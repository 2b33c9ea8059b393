//! The real kubectl.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A kubectl with its kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    /// Uses this program and this file.
    pub fn new(program: &Path, kubeconfig: &Path) -> Self {
        Self {
            program: program.to_owned(),
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// A command with the kubeconfig set, to be completed by the caller.
    pub fn command<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(&self.program);
        // Discovery is not kept between runs: another server may have had the same address.
        command
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .arg("--cache-dir")
            .arg(self.kubeconfig.with_extension("cache"))
            .args(arguments)
            .env_remove("KUBECONFIG");
        command
    }

    /// Runs it, whatever its exit code.
    pub fn output<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<Output> {
        Ok(self.command(arguments).stdin(Stdio::null()).output()?)
    }

    /// Runs it and answers what it printed; another exit code than 0 is an error that bears its
    /// words.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<String> {
        let output = self.output(arguments)?;
        checked(&output, &words(arguments))
    }

    /// Runs it, expects that it fails, and answers its words.
    pub fn refused<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S]) -> Result<String> {
        let output = self.output(arguments)?;
        if output.status.success() {
            bail!("kubectl {} was expected to fail", words(arguments));
        }
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Runs it with a manifest on standard input.
    pub fn with_input<S: AsRef<std::ffi::OsStr>>(
        &self,
        arguments: &[S],
        input: &str,
    ) -> Result<Output> {
        use std::io::Write;
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child
            .stdin
            .take()
            .context("piped")?
            .write_all(input.as_bytes())?;
        Ok(child.wait_with_output()?)
    }

    /// `apply -f -` of a manifest.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let output = self.with_input(&["apply", "-f", "-"], manifest)?;
        checked(&output, "apply")
    }

    /// Runs it with `-o json`.
    pub fn json<S: AsRef<std::ffi::OsStr> + Clone>(&self, arguments: &[S]) -> Result<Value> {
        let output = self.command(arguments).args(["-o", "json"]).output()?;
        Ok(serde_json::from_str(&checked(&output, &words(arguments))?)?)
    }
}

fn checked(output: &Output, what: &str) -> Result<String> {
    if !output.status.success() {
        bail!(
            "kubectl {what}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> String {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| word.as_ref().to_string_lossy())
        .collect();
    words.join(" ")
}
