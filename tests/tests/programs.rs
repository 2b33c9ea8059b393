//! What each program says when it cannot work.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::Result;
use swiftlet_tests::programs::{on_path, ours};

fn run(command: &mut Command) -> Result<(Output, String)> {
    let output = command
        .env_remove("RUST_LOG")
        .env("RUST_BACKTRACE", "0")
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((output, words))
}

/// What could not start has not made the node's folder a mount.
fn is_no_mount(root: &Path) -> Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let root = root.display().to_string();
    assert!(!mounts.contains(&root), "{root} is a mount");
    Ok(())
}

/// One sentence: a single line that names the remedy, and a failure.
fn is_one_sentence(output: &Output, words: &str, about: &str) {
    assert!(!output.status.success(), "{words}");
    // Log records may come first.
    let lines: Vec<_> = words
        .lines()
        .filter(|line| !line.contains(" INFO "))
        .filter(|line| !line.trim().is_empty())
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains(about),
        "about {about}: {words}"
    );
}

#[test]
fn without_root_each_program_says_so() -> Result<()> {
    let Some(setpriv) = on_path("setpriv") else {
        anyhow::bail!("no setpriv (util-linux)")
    };
    let folder = tempfile::tempdir()?;
    // The programs may lie where another user cannot look.
    for name in ["swiftlet-node", "swiftlet-stack"] {
        std::fs::copy(ours(name)?, folder.path().join(name))?;
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode)?;
    for (name, arguments) in [("swiftlet-node", vec![]), ("swiftlet-stack", vec!["up"])] {
        let mut command = Command::new(&setpriv);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        let (output, words) = run(command.arg(folder.path().join(name)).args(arguments))?;
        is_one_sentence(&output, &words, "root");
    }
    Ok(())
}

#[test]
fn a_node_without_kubeconfig_names_the_file() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("root");
    let mut command = Command::new(ours("swiftlet-node")?);
    command.args(["--kubeconfig", "/nonexistent/node.kubeconfig"]);
    let (output, words) = run(command.arg("--root-dir").arg(&root))?;
    is_one_sentence(&output, &words, "/nonexistent/node.kubeconfig");
    is_no_mount(&root)
}

#[test]
fn a_control_plane_whose_port_is_taken_names_the_address() -> Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(ours("swiftlet-control")?);
    command
        .arg("--data-dir")
        .arg(folder.path())
        .args(["--listen", &taken.local_addr()?.to_string()]);
    let (output, words) = run(&mut command)?;
    is_one_sentence(&output, &words, &taken.local_addr()?.to_string());
    Ok(())
}

#[test]
fn doctor_names_what_is_missing_and_its_remedy() -> Result<()> {
    let mut command = Command::new(ours("swiftlet-node")?);
    command.args([
        "doctor",
        "--container-runtime-endpoint",
        "unix:///nonexistent/containerd.sock",
    ]);
    command.args(["--cni-bin-dir", "/nonexistent"]);
    let (output, _) = run(&mut command)?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{report}");
    for name in [
        "kernel",
        "capabilities",
        "io_uring",
        "cgroups",
        "container runtime",
        "cni shim",
    ] {
        assert!(
            report.lines().any(|line| line.contains(name)),
            "{name}: {report}"
        );
    }
    let runtime = report
        .lines()
        .find(|line| line.contains("container runtime"));
    let runtime = runtime.unwrap_or_default();
    assert!(
        runtime.starts_with("missing") && runtime.contains("-> start containerd"),
        "{report}"
    );
    assert!(Path::new("/proc/sys/net/ipv4/ip_forward").exists() && report.contains("ip_forward"));
    Ok(())
}

#[test]
fn a_node_without_container_runtime_says_what_to_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(ours("swiftlet-control")?);
    command.arg("--data-dir").arg(folder.path());
    let (config, words) = run(command.args(["kubeconfig", "--node", "worker-1"]))?;
    assert!(config.status.success(), "{words}");
    let kubeconfig = folder.path().join("node.kubeconfig");
    std::fs::write(&kubeconfig, &config.stdout)?;
    let mut command = Command::new(ours("swiftlet-node")?);
    command.arg("--kubeconfig").arg(&kubeconfig);
    for (flag, path) in [
        ("--root-dir", "root"),
        ("--cni-conf-dir", "conf"),
        ("--cni-data-dir", "networks"),
        ("--cni-socket", "cni.sock"),
    ] {
        command.arg(flag).arg(folder.path().join(path));
    }
    command.args([
        "--container-runtime-endpoint",
        "unix:///nonexistent/containerd.sock",
    ]);
    let (output, words) = run(&mut command)?;
    is_one_sentence(&output, &words, "start containerd");
    assert!(words.contains("/nonexistent/containerd.sock"), "{words}");
    is_no_mount(&folder.path().join("root"))
}
