//! `swiftlet-node doctor`: one line per prerequisite, with the remedy where one is missing.

mod cgroups;
pub(crate) mod configuration;
mod events;
mod kernel;
mod network;
mod runtime;
mod sysctls;

use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;

use crate::configuration::{ConfigurationError, Settings};
use crate::options::NodeOptions;

/// How a prerequisite stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// Works, but slower or with less; the remedy says how to have more.
    Warning,
    /// Pods cannot run.
    Missing,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        })
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Check {
    /// What was looked at.
    pub(crate) name: &'static str,
    /// How it stands.
    pub(crate) verdict: Verdict,
    /// What was found.
    pub(crate) found: String,
    /// What to do; empty when all is well.
    pub(crate) remedy: String,
}

impl Check {
    pub(crate) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            remedy: String::new(),
        }
    }

    pub(crate) fn warning(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (found, remedy) = (found.into(), remedy.into());
        Self {
            name,
            verdict: Verdict::Warning,
            found,
            remedy,
        }
    }

    pub(crate) fn missing(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (found, remedy) = (found.into(), remedy.into());
        Self {
            name,
            verdict: Verdict::Missing,
            found,
            remedy,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<22} {}", self.verdict, self.name, self.found)?;
        if !self.remedy.is_empty() {
            write!(f, " -> {}", self.remedy)?;
        }
        Ok(())
    }
}

/// Looks at everything and prints a line for each; fails if something is missing.
pub(crate) async fn run(
    options: &NodeOptions,
    settings: Result<&Settings, &ConfigurationError>,
) -> ExitCode {
    let mut checks = configuration::examine(options, settings);
    checks.extend(examine(options).await);
    let colour = std::io::stdout().is_terminal();
    for check in &checks {
        match (colour, check.verdict) {
            (true, Verdict::Warning) => println!("\x1b[33m{check}\x1b[0m"),
            (true, Verdict::Missing) => println!("\x1b[31m{check}\x1b[0m"),
            _ => println!("{check}"),
        }
    }
    match checks.iter().map(|check| check.verdict).max() {
        Some(Verdict::Missing) => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

async fn examine(options: &NodeOptions) -> Vec<Check> {
    let mut checks = kernel::examine();
    checks.extend(events::examine(options).await);
    checks.extend(cgroups::examine());
    checks.extend(runtime::examine(options).await);
    checks.extend(sysctls::examine(options));
    checks.extend(network::examine(options));
    checks
}

#[cfg(test)]
mod tests {
    use super::{Check, Verdict};

    #[test]
    fn a_line_names_the_verdict_the_check_and_the_remedy() {
        let line = Check::missing("containerd", "no socket", "start containerd").to_string();
        assert!(line.starts_with("missing"), "{line}");
        assert!(
            line.contains("containerd") && line.ends_with("-> start containerd"),
            "{line}"
        );
        assert!(!Check::ok("kernel", "6.1").to_string().contains("->"));
    }

    #[test]
    fn the_worst_verdict_decides() {
        assert!(Verdict::Missing > Verdict::Warning && Verdict::Warning > Verdict::Ok);
    }
}
