//! The container runtime, its configuration, and the network plugin.

use std::path::Path;

use swiftlet_cri::Cri;
use swiftlet_model::runtime::Runtime;

use super::Check;
use super::kernel::{CAP_SYS_RESOURCE, has_capability};
use crate::options::NodeOptions;

pub(super) async fn examine(options: &NodeOptions) -> Vec<Check> {
    let runtime = Cri::new(options.runtime_socket());
    let mut checks = Vec::new();
    match runtime.version().await {
        Ok(version) => {
            let found = format!("{} {}", version.name, version.version);
            checks.push(Check::ok("container runtime", found));
            let told = runtime.configuration().await.ok().flatten();
            checks.push(configuration(told.as_deref().unwrap_or_default()));
        }
        Err(error) => checks.push(Check::missing(
            "container runtime",
            error.to_string(),
            "start containerd, or name its socket by --container-runtime-endpoint",
        )),
    }
    for name in ["swiftlet-cni", "loopback"] {
        checks.push(plugin(&options.cni_bin_dir, name));
    }
    checks
}

/// Judges the runtime's own words about its CRI section: a JSON text, empty if it does not say.
fn configuration(json: &str) -> Check {
    const NAME: &str = "runtime config";
    let config: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let Some(restricted) = config["restrictOOMScoreAdj"].as_bool() else {
        return Check::ok(NAME, "not told by the runtime");
    };
    if !restricted && !has_capability(CAP_SYS_RESOURCE) {
        return Check::missing(
            NAME,
            "restrict_oom_score_adj = false, but CAP_SYS_RESOURCE is lacking",
            "set restrict_oom_score_adj = true in containerd's CRI section",
        );
    }
    Check::ok(NAME, format!("restrict_oom_score_adj = {restricted}"))
}

fn plugin(folder: &Path, name: &'static str) -> Check {
    let path = folder.join(name);
    let check_name = if name == "loopback" {
        "cni loopback"
    } else {
        "cni shim"
    };
    if path.is_file() {
        return Check::ok(check_name, path.display().to_string());
    }
    Check::missing(
        check_name,
        format!("{} does not exist", path.display()),
        "copy swiftlet-cni there (it serves under both names)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn a_runtime_that_does_not_tell_its_configuration_is_believed() {
        assert_eq!(configuration("").verdict, Verdict::Ok);
    }

    #[test]
    fn a_plugin_that_is_not_there_is_missing() {
        let check = plugin(Path::new("/nonexistent"), "swiftlet-cni");
        assert_eq!(check.verdict, Verdict::Missing);
        assert!(check.found.contains("/nonexistent/swiftlet-cni"), "{check}");
    }
}
