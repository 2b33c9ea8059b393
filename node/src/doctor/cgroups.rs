//! cgroup mode and controllers.

use std::path::Path;

use swiftlet_cgroup::{Hierarchies, Mode};

use super::Check;

/// Controllers without which limits of pods would be ignored.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Where the kernel counts tasks that wait for memory (`Documentation/accounting/psi.rst`).
const PRESSURE: &str = "/proc/pressure/memory";

pub(super) fn examine() -> Vec<Check> {
    match swiftlet_cgroup::hierarchies() {
        Ok(hierarchies) => {
            let mut checks = vec![judge(hierarchies.mode, &controllers(&hierarchies))];
            // On v1 it is an event of the memory controller.
            if hierarchies.mode == Mode::V2 {
                checks.push(pressure(Path::new(PRESSURE).exists()));
            }
            checks
        }
        Err(error) => {
            let remedy = "mount /sys/fs/cgroup";
            vec![Check::missing("cgroups", error.to_string(), remedy)]
        }
    }
}

/// Some distributions build the kernel with it and boot without it.
fn pressure(is_told: bool) -> Check {
    const NAME: &str = "memory pressure";
    if is_told {
        return Check::ok(NAME, PRESSURE);
    }
    Check::warning(
        NAME,
        "not told by this kernel: who evicts waits for its next look, ten seconds at most",
        "boot with psi=1",
    )
}

/// On v2 they stand in a file; on v1 each hierarchy's folder bears the names of its own.
fn controllers(hierarchies: &Hierarchies) -> Vec<String> {
    let words = hierarchies
        .folders
        .iter()
        .map(|folder| match hierarchies.mode {
            Mode::V2 => {
                let file = folder.join("cgroup.controllers");
                std::fs::read_to_string(file)
                    .unwrap_or_default()
                    .replace(' ', ",")
            }
            Mode::V1 => folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        });
    let split = |names: String| {
        names
            .trim()
            .split(',')
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    words.flat_map(split).collect()
}

fn judge(mode: Mode, controllers: &[String]) -> Check {
    let mode = match mode {
        Mode::V2 => "v2",
        Mode::V1 => "v1 or hybrid",
    };
    let is_lacking = |wanted: &&str| !controllers.iter().any(|found| found == wanted);
    let lacking: Vec<_> = CONTROLLERS.into_iter().filter(is_lacking).collect();
    if lacking.is_empty() {
        return Check::ok("cgroups", format!("{mode}, {}", controllers.join(" ")));
    }
    let found = format!("{mode}, without {}", lacking.join(" "));
    Check::missing("cgroups", found, "boot with these controllers enabled")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_controller_that_is_not_there_is_named() {
        let all = CONTROLLERS.map(str::to_owned);
        assert_eq!(judge(Mode::V2, &all).verdict, Verdict::Ok);
        let check = judge(Mode::V1, &all[..2]);
        assert_eq!(check.verdict, Verdict::Missing);
        assert!(check.found.contains("without pids"), "{check}");
    }

    #[test]
    fn a_kernel_that_does_not_tell_of_pressure_is_a_warning() {
        assert_eq!(pressure(true).verdict, Verdict::Ok);
        let check = pressure(false);
        assert_eq!(check.verdict, Verdict::Warning);
        assert!(check.remedy.contains("psi=1"), "{check}");
    }
}
