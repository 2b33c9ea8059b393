//! Manifests in real folders, changes told by the real kernel.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::sources::{Source, SourcePods};
use swiftlet_source::{FolderOptions, follow_folder};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// What a test waits for an answer of the kernel.
const LIMIT: Duration = Duration::from_secs(10);
/// A slow look that does not come within a test.
const NEVER: Duration = Duration::from_hours(1);

struct Fixture {
    lists: mpsc::Receiver<SourcePods>,
    shutdown: CancellationToken,
}

impl Fixture {
    fn follow(path: &Path, check_period: Duration) -> Self {
        let (sender, lists) = mpsc::channel(16);
        let shutdown = CancellationToken::new();
        let options = FolderOptions {
            path: path.to_owned(),
            node_name: "n1".into(),
            check_period,
        };
        tokio::spawn(follow_folder(options, sender, shutdown.clone()));
        Self { lists, shutdown }
    }

    async fn next(&mut self) -> Vec<Arc<Pod>> {
        let list = tokio::time::timeout(LIMIT, self.lists.recv()).await;
        let list = list.unwrap().unwrap();
        assert_eq!(list.source, Source::File);
        list.pods
    }

    /// Images of the pods in the next list, by name.
    async fn images(&mut self) -> Vec<String> {
        let pods = self.next().await;
        let image = |pod: &Arc<Pod>| {
            let name = pod.metadata.name.clone().unwrap();
            let image = pod.spec.as_ref().unwrap().containers[0].image.clone();
            format!("{name}={}", image.unwrap())
        };
        pods.iter().map(image).collect()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\n\
         spec: {{containers: [{{name: c, image: \"{image}\"}}]}}\n"
    )
}

#[tokio::test]
async fn files_come_change_and_go_with_their_pods() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: String| std::fs::write(dir.path().join(file), text).unwrap();
    write("a.yaml", manifest("a", "i:1"));
    let mut fixture = Fixture::follow(dir.path(), NEVER);
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
    write("b.json", manifest("b", "i:1"));
    assert_eq!(fixture.images().await, ["a-n1=i:1", "b-n1=i:1"]);
    write("a.yaml", manifest("a", "i:2"));
    assert_eq!(fixture.images().await, ["a-n1=i:2", "b-n1=i:1"]);
    std::fs::remove_file(dir.path().join("a.yaml")).unwrap();
    assert_eq!(fixture.images().await, ["b-n1=i:1"]);
}

#[tokio::test]
async fn a_file_that_is_moved_in_counts_and_hidden_files_and_folders_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::follow(dir.path(), NEVER);
    assert!(
        fixture.next().await.is_empty(),
        "nothing is known to be there"
    );
    let hidden = dir.path().join(".work");
    std::fs::write(&hidden, manifest("a", "i:1")).unwrap();
    std::fs::create_dir(dir.path().join("folder")).unwrap();
    std::fs::rename(&hidden, dir.path().join("a.yaml")).unwrap();
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
    std::fs::rename(dir.path().join("a.yaml"), &hidden).unwrap();
    assert!(fixture.next().await.is_empty());
    std::os::unix::fs::symlink(&hidden, dir.path().join("link.yaml")).unwrap();
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
}

#[tokio::test]
async fn a_manifest_that_is_broken_leaves_its_pod_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: String| std::fs::write(dir.path().join(file), text).unwrap();
    write("a.yaml", manifest("a", "i:1"));
    let mut fixture = Fixture::follow(dir.path(), NEVER);
    let first = fixture.next().await;
    write("a.yaml", "kind: [".into());
    // The same again but for its layout: still the same pod, and no list.
    write("a.yaml", format!("# comment\n{}", manifest("a", "i:1")));
    write("b.yaml", manifest("b", "i:1"));
    let second = fixture.next().await;
    assert!(Arc::ptr_eq(&first[0], &second[0]));
    assert_eq!(second.len(), 2);
}

#[tokio::test]
async fn two_files_with_one_name_are_one_pod() {
    let dir = tempfile::tempdir().unwrap();
    let write = |file: &str, text: String| std::fs::write(dir.path().join(file), text).unwrap();
    write("a.yaml", manifest("a", "i:1"));
    write("z.yaml", manifest("a", "i:2"));
    let mut fixture = Fixture::follow(dir.path(), NEVER);
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
}

#[tokio::test]
async fn a_folder_that_comes_later_is_found_by_the_slow_look() {
    let dir = tempfile::tempdir().unwrap();
    let later = dir.path().join("later");
    let mut fixture = Fixture::follow(&later, Duration::from_millis(10));
    assert!(fixture.next().await.is_empty());
    let complete = dir.path().join("complete");
    std::fs::create_dir(&complete).unwrap();
    std::fs::write(complete.join("a.yaml"), manifest("a", "i:1")).unwrap();
    std::fs::rename(&complete, &later).unwrap();
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
    std::fs::remove_dir_all(&later).unwrap();
    assert!(fixture.next().await.is_empty());
}

#[tokio::test]
async fn the_path_may_be_a_single_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.yaml");
    std::fs::write(&file, manifest("a", "i:1")).unwrap();
    let mut fixture = Fixture::follow(&file, NEVER);
    assert_eq!(fixture.images().await, ["a-n1=i:1"]);
    std::fs::write(dir.path().join("b.yaml"), manifest("b", "i:1")).unwrap();
    std::fs::write(&file, manifest("a", "i:2")).unwrap();
    assert_eq!(fixture.images().await, ["a-n1=i:2"]);
}
