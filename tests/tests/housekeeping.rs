//! What the node keeps small and clean: logs, log folders, images.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use swiftlet_cri::Cri;
use swiftlet_model::runtime::Runtime;
use swiftlet_tests::pods::{LIMIT, manifest, wait_ready};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Two rotations, each up to two looks after the log has become large.
const ROTATION_LIMIT: Duration = Duration::from_mins(2);
/// Writes numbered lines, some megabytes a second.
const WRITER: &str = r#"
line=$(printf '%0200d' 0); i=0
while true; do
  i=$((i+1)); echo "$i $line"
  [ $((i % 2000)) = 0 ] && sleep 0.1
done
"#;

fn stack() -> Result<(tempfile::TempDir, Stack)> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let options = StackOptions::new(&folder.path().join("s"));
    Ok((folder, Stack::start(options)?))
}

/// The files of a container's log, oldest first.
fn log_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    // The one that is written to has no stamp.
    files.sort_by_key(|path| (path.ends_with("0.log"), path.clone()));
    files
}

/// The numbers of the lines in a file.
fn numbers(file: &Path) -> Result<Vec<u64>> {
    let is_compressed = file.extension().is_some_and(|ending| ending == "gz");
    let text = if is_compressed {
        let output = Command::new("gzip").arg("-dc").arg(file).output()?;
        String::from_utf8(output.stdout)?
    } else {
        std::fs::read_to_string(file)?
    };
    // `<time> stdout F <number> <zeroes>`; the last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let numbers = whole.lines().map(|line| {
        let number = line.split(' ').nth(3).context("a line of a log")?;
        Ok(number.parse()?)
    });
    numbers.collect()
}

#[test]
fn logs_are_rotated_without_losing_a_line() -> Result<()> {
    let (_folder, stack) = stack()?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    kubectl.apply(&manifest("writer", 1, image, WRITER))?;
    wait_ready(&kubectl, 1)?;
    let pod = kubectl.json(&["get", "pod", "writer-0"])?;
    let uid = pod["metadata"]["uid"].as_str().context("uid")?;
    let folder = stack.options().dir.join("logs/pods");
    let folder = folder.join(format!("default_writer-0_{uid}/main"));
    let ends_with = |ending: &str| {
        let files = log_files(&folder);
        files
            .iter()
            .any(|path| path.to_string_lossy().ends_with(ending))
    };
    wait_for("a compressed log", ROTATION_LIMIT, || {
        ends_with(".gz").then_some(())
    })?;
    // Between moving the log away and opening a new one there is none.
    wait_for("the log", LIMIT, || ends_with("/0.log").then_some(()))?;
    kubectl.run(&[
        "delete",
        "pod",
        "writer-0",
        "--wait=false",
        "--grace-period=30",
    ])?;
    let files = log_files(&folder);
    let mut all = Vec::new();
    for file in &files {
        all.extend(numbers(file)?);
    }
    assert_eq!(all.first(), Some(&1), "{files:?}");
    let gap = all.windows(2).find(|pair| pair[0] + 1 != pair[1]);
    assert_eq!(gap, None, "{files:?}");
    Ok(())
}

#[test]
fn log_folders_of_nobody_go_and_the_sandbox_image_is_kept() -> Result<()> {
    let (_folder, stack) = stack()?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    kubectl.apply(&manifest("mine", 1, image, "sleep 3600"))?;
    wait_ready(&kubectl, 1)?;
    let pods = stack.options().dir.join("logs/pods");
    let ghost = pods.join("default_ghost_0f0e0d0c-0000-0000-0000-000000000000");
    let other = pods.join("not-a-pod");
    for folder in [ghost.join("main"), other.clone()] {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("0.log"), "words\n")?;
    }
    wait_for("the ghost's logs are gone", LIMIT, || {
        (!ghost.exists()).then_some(())
    })?;
    assert!(other.exists(), "what is nobody's folder is left alone");
    let mine = kubectl.json(&["get", "pod", "mine-0"])?;
    assert_eq!(
        mine["status"]["containerStatuses"][0]["restartCount"],
        json!(0)
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // The connection belongs to the runtime in which it is made.
    let images = async { Cri::new(stack.runtime_socket()).list_images().await };
    let images = runtime.block_on(images)?;
    let pinned: Vec<_> = images.iter().filter(|image| image.pinned).collect();
    assert_eq!(pinned.len(), 1, "{images:?}");
    assert_eq!(pinned[0].tags, [stack.options().pause_image.as_str()]);
    Ok(())
}
