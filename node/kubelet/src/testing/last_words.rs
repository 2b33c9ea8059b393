//! Termination messages on the fakes.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;

use crate::testing::stand::{Stand, pod};

const LOG: &str = "/logs/default_a_a/main/0.log";

fn never(policy: &str) -> Pod {
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    spec.restart_policy = Some("Never".into());
    spec.containers[0].termination_message_policy = Some(policy.into());
    pod
}

fn message(stand: &Stand) -> Option<String> {
    let status = stand.control_plane.status("a")?;
    let state = status.container_statuses?.first()?.state.clone()?;
    state.terminated?.message
}

/// What the first run of the container leaves in its file.
fn write(stand: &Stand, words: &str) {
    let words = (("main".to_owned(), 0), words.to_owned());
    stand.node.messages.lock().unwrap().extend([words]);
}

/// Runs a pod that ends with `code`, having written `words`; its log ends with `logged`.
async fn ended(policy: &str, words: &str, code: i32) -> Stand {
    let stand = Stand::new().await;
    stand.upsert(&never(policy)).await;
    stand.seconds(1).await;
    write(&stand, words);
    let logged = (PathBuf::from(LOG), "logged".to_owned());
    stand.node.log_tails.lock().unwrap().extend([logged]);
    let id = stand.runtime.container("main").id;
    stand.die("a", &id, code).await;
    stand.seconds(1).await;
    stand
}

#[tokio::test(start_paused = true)]
async fn what_a_container_wrote_is_shown_when_it_has_ended() {
    let stand = ended("File", "my last words", 3).await;
    assert_eq!(message(&stand).as_deref(), Some("my last words"));
    assert_eq!(stand.phase("a").as_deref(), Some("Failed"));
}

#[tokio::test(start_paused = true)]
async fn the_log_stands_in_after_an_error_if_the_policy_says_so_and_nothing_was_written() {
    for (policy, words, code, expected) in [
        ("FallbackToLogsOnError", "", 1, Some("logged")),
        ("FallbackToLogsOnError", "", 0, None),
        ("FallbackToLogsOnError", "words", 1, Some("words")),
        ("File", "", 1, None),
    ] {
        let stand = ended(policy, words, code).await;
        assert_eq!(
            message(&stand).as_deref(),
            expected,
            "{policy} {words} {code}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_stays_when_the_agent_restarts_and_is_cut_to_the_pods_share() {
    let stand = ended("File", &"x".repeat(20_000), 3).await;
    assert_eq!(message(&stand).unwrap().len(), 12 << 10);
    stand.node.messages.lock().unwrap().clear();
    let stand = stand.restart().await;
    let pod = never("File");
    stand.list(&[&pod]).await;
    stand.seconds(5).await;
    assert_eq!(message(&stand).unwrap().len(), 12 << 10);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_saw_is_told_with_its_words() {
    let stand = Stand::new().await;
    let pod = never("File");
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    write(&stand, "words");
    let id = stand.runtime.container("main").id;
    stand.runtime.kill(&id, 4);
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(5).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Failed"));
    assert_eq!(message(&stand).as_deref(), Some("words"));
}
