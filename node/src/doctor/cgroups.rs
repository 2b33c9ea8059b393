//! cgroup mode and controllers.

use swiftlet_cgroup::{Hierarchies, Mode};

use super::Check;

/// Controllers without which limits of pods would be ignored.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

pub(super) fn examine() -> Check {
    match swiftlet_cgroup::hierarchies() {
        Ok(hierarchies) => judge(hierarchies.mode, &controllers(&hierarchies)),
        Err(error) => Check::missing("cgroups", error.to_string(), "mount /sys/fs/cgroup"),
    }
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
}
