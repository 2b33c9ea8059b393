//! The token of a pod's service account, from the API server into the container.

use anyhow::Result;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::programs;
use swiftlet_tests::stack::{Stack, StackOptions};

const IMAGE: &str = "registry.local/busybox:1.35";

/// Ends well only where everything is in its place.
const LOOK: &str = "cd /var/run/secrets/kubernetes.io/serviceaccount && \
                    grep -q BEGIN ca.crt && test \"$(cat namespace)\" = default && \
                    test \"$(cut -d. -f1 token)\" != \"\" && cut -d. -f3 token | grep -q ...";

#[test]
fn a_container_finds_token_certificate_and_namespace() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let all = programs::kubectls()?;
    let (_, program) = all
        .last()
        .ok_or_else(|| anyhow::anyhow!("no kubectl on this machine"))?;
    let kubectl = Kubectl::new(program, &stack.kubeconfig());
    kubectl.run(&[
        "run",
        "look",
        "--image",
        IMAGE,
        "--restart=Never",
        "--",
        "sh",
        "-c",
        LOOK,
    ])?;
    let ended = "--for=jsonpath={.status.phase}=Succeeded";
    let waited = kubectl.run(&["wait", "pod/look", ended, "--timeout=60s"]);
    if waited.is_err() {
        println!("{}", kubectl.run(&["describe", "pod", "look"])?);
    }
    waited.map(|_| ())
}
