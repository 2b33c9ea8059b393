//! Images of pods on a whole kubelet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{LocalObjectReference, SecurityContext};
use swiftlet_model::control_plane::{ControlPlaneEvent, ObjectRef, RefKind};
use swiftlet_model::node_stats::{FilesystemLevel, Level};
use swiftlet_model::runtime::{Image, ImageFilesystem};

use super::*;
use crate::images::collector::IMAGE_GC_PERIOD;
use crate::testing::stand::{Stand, pod};

fn with_image(uid: &str, image: &str) -> Pod {
    let mut pod = pod(uid);
    pod.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
    pod
}

fn messages(stand: &Stand, reason: &str) -> Vec<String> {
    let told = stand.control_plane.told.lock().unwrap();
    let of_reason = told
        .events
        .iter()
        .filter(|event| event.reason.as_deref() == Some(reason));
    of_reason
        .filter_map(|event| event.message.clone())
        .collect()
}

fn pulls(stand: &Stand) -> usize {
    let calls = stand.runtime.calls();
    calls
        .iter()
        .filter(|call| call.starts_with("pull "))
        .count()
}

fn waiting_message(stand: &Stand, uid: &str) -> String {
    let status = stand.control_plane.status(uid).unwrap();
    let state = status.container_statuses.unwrap()[0].state.clone();
    state.unwrap().waiting.unwrap().message.unwrap_or_default()
}

/// A Secret with the password of this user of `registry.local`.
fn give_secret(stand: &Stand, name: &str, user: &str) {
    let config = format!(r#"{{"auths":{{"registry.local":{{"username":"{user}"}}}}}}"#);
    let data = BTreeMap::from([(".dockerconfigjson".to_owned(), config.into_bytes())]);
    let object = ObjectRef {
        kind: RefKind::Secret,
        namespace: "default".into(),
        name: name.into(),
    };
    let mut told = stand.control_plane.told.lock().unwrap();
    told.referenced.insert(object, Arc::new(data));
}

fn with_secrets(uid: &str, names: &[&str]) -> Pod {
    let mut pod = with_image(uid, "registry.local/app:1");
    let secret = |name: &&str| LocalObjectReference {
        name: (*name).to_owned(),
    };
    pod.spec.as_mut().unwrap().image_pull_secrets = Some(names.iter().map(secret).collect());
    pod
}

#[test]
fn durations_are_printed_as_go_prints_them() {
    let cases = [
        (0, "0s"),
        (5, "5ms"),
        (1200, "1.2s"),
        (1234, "1.234s"),
        (2000, "2s"),
        (61_050, "1m1.05s"),
        (3_600_000, "1h0m0s"),
    ];
    for (ms, text) in cases {
        assert_eq!(go_duration(Duration::from_millis(ms)), text);
    }
}

#[test]
fn without_a_policy_the_newest_image_is_pulled_and_others_are_not() {
    let policy = |written: Option<&str>, image: &str| {
        let container = Container {
            image_pull_policy: written.map(str::to_owned),
            ..Container::default()
        };
        PullPolicy::of(&container, &Reference::parse(image).unwrap())
    };
    assert_eq!(policy(None, "a"), PullPolicy::Always);
    assert_eq!(policy(None, "a:latest"), PullPolicy::Always);
    assert_eq!(policy(None, "a:1"), PullPolicy::IfNotPresent);
    assert_eq!(policy(Some("Never"), "a"), PullPolicy::Never);
}

#[tokio::test(start_paused = true)]
async fn five_pods_that_want_one_image_make_one_pull_and_each_is_told() {
    let stand = Stand::new().await;
    for number in 0..5 {
        stand
            .upsert(&with_image(&format!("p{number}"), "registry.local/app:1"))
            .await;
    }
    stand.seconds(5).await;
    assert_eq!(pulls(&stand), 1);
    let told = messages(&stand, "Pulled");
    assert_eq!(told.len(), 5);
    for text in told {
        assert_eq!(
            text,
            "Successfully pulled image \"registry.local/app:1\" in 10ms (10ms including waiting). \
             Image size: 7 bytes."
        );
    }
    assert!((0..5).all(|number| stand.is_ready(&format!("p{number}"))));
}

#[tokio::test(start_paused = true)]
async fn every_credential_that_fits_is_tried_in_turn() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_user = Some("right".into());
    give_secret(&stand, "one", "wrong");
    give_secret(&stand, "two", "right");
    stand.upsert(&with_secrets("a", &["one", "two"])).await;
    stand.seconds(5).await;
    assert!(stand.is_ready("a"));
    let users = stand.runtime.state.lock().unwrap().pull_users.clone();
    assert_eq!(users, [Some("wrong".to_owned()), Some("right".to_owned())]);
    assert!(messages(&stand, "FailedToRetrieveImagePullSecret").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_nodes_own_credentials_are_tried_after_those_of_the_pod() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_user = Some("node".into());
    let file = |user: &str| {
        let text = format!(r#"{{"auths":{{"registry.local":{{"username":"{user}"}}}}}}"#);
        BTreeMap::from([(".dockerconfigjson".to_owned(), text.into_bytes())])
    };
    let broken = BTreeMap::from([(".dockerconfigjson".to_owned(), b"{".to_vec())]);
    // The first that can be understood counts, and it alone.
    let all = vec![broken, file("node"), file("other")];
    *stand.node.credentials.documents.lock().unwrap() = all;
    give_secret(&stand, "one", "pod");
    stand.upsert(&with_secrets("a", &["one"])).await;
    stand.seconds(5).await;
    assert!(stand.is_ready("a"));
    let users = stand.runtime.state.lock().unwrap().pull_users.clone();
    assert_eq!(users, [Some("pod".to_owned()), Some("node".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_pull_secret_that_is_not_there_is_told_and_used_when_it_comes() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_user = Some("right".into());
    let pod = with_secrets("a", &["late"]);
    stand.upsert(&pod).await;
    stand.seconds(5).await;
    assert_eq!(stand.reason("a").as_deref(), Some("ImagePullBackOff"));
    assert_eq!(
        messages(&stand, "FailedToRetrieveImagePullSecret"),
        [
            "Unable to retrieve some image pull secrets (late); attempting to pull the image may \
          not succeed."
        ]
    );
    assert_eq!(stand.runtime.state.lock().unwrap().pull_users, [None]);
    give_secret(&stand, "late", "right");
    let late = ObjectRef {
        kind: RefKind::Secret,
        namespace: "default".into(),
        name: "late".into(),
    };
    stand.send(ControlPlaneEvent::Referenced(late)).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"), "a new Secret ends the back-off");
}

#[tokio::test(start_paused = true)]
async fn pulls_with_other_credentials_are_not_shared() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_user = Some("right".into());
    give_secret(&stand, "one", "wrong");
    give_secret(&stand, "two", "right");
    stand.upsert(&with_secrets("bad", &["one"])).await;
    stand.upsert(&with_secrets("good", &["two"])).await;
    stand.seconds(5).await;
    assert!(stand.is_ready("good"));
    assert_eq!(pulls(&stand), 2);
}

#[tokio::test(start_paused = true)]
async fn the_words_of_a_failed_pull_are_those_of_kubernetes() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_fails = true;
    stand
        .upsert(&with_image("a", "registry.local/none:1"))
        .await;
    stand.seconds(5).await;
    assert_eq!(
        waiting_message(&stand, "a"),
        "Back-off pulling image \"registry.local/none:1\": ErrImagePull: no such image"
    );
    assert_eq!(
        messages(&stand, "Pulling"),
        ["Pulling image \"registry.local/none:1\""]
    );
    assert_eq!(
        messages(&stand, "Failed"),
        [
            "Failed to pull image \"registry.local/none:1\": no such image",
            "Error: ErrImagePull",
            "Error: ImagePullBackOff",
        ]
    );
    assert_eq!(
        messages(&stand, "BackOff"),
        ["Back-off pulling image \"registry.local/none:1\""]
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_never_pulled_and_a_name_that_is_none_are_told() {
    let stand = Stand::new().await;
    let mut never = with_image("never", "registry.local/none:1");
    never.spec.as_mut().unwrap().containers[0].image_pull_policy = Some("Never".into());
    stand.upsert(&never).await;
    stand.upsert(&with_image("bad", "Not An Image")).await;
    stand.seconds(5).await;
    assert_eq!(stand.reason("never").as_deref(), Some("ErrImageNeverPull"));
    assert_eq!(stand.reason("bad").as_deref(), Some("InvalidImageName"));
    assert!(messages(&stand, "InspectFailed")[0].starts_with("Failed to apply default image tag"));
    assert_eq!(pulls(&stand), 0);
}

#[tokio::test(start_paused = true)]
async fn a_corrected_image_does_not_wait_for_the_back_off_of_the_wrong_one() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().pull_fails = true;
    let mut pod = with_image("a", "registry.local/none:1");
    stand.upsert(&pod).await;
    stand.seconds(200).await;
    assert_eq!(stand.reason("a").as_deref(), Some("ImagePullBackOff"));
    pod.spec.as_mut().unwrap().containers[0].image = Some("busybox".into());
    stand.upsert(&pod).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_would_run_as_root_does_not_start_where_root_is_forbidden() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().containers[0].security_context = Some(SecurityContext {
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    });
    stand.upsert(&pod).await;
    stand.seconds(2).await;
    assert_eq!(
        stand.reason("a").as_deref(),
        Some("CreateContainerConfigError")
    );
    assert!(waiting_message(&stand, "a").contains("image will run as root"));
    stand.delete(&pod, 0).await;
    stand.runtime.state.lock().unwrap().image_user = ImageUser::Uid(7);
    let mut other = pod.clone();
    (other.metadata.uid, other.metadata.name) = (Some("b".into()), Some("b".into()));
    stand.upsert(&other).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("b"));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_loses_its_unused_images_and_the_pods_image_stays() {
    let stand = Stand::new().await;
    {
        let mut state = stand.runtime.state.lock().unwrap();
        let image = |id: &str, pinned| Image {
            id: id.to_owned(),
            size_bytes: 10,
            pinned,
            ..Image::default()
        };
        state.image_list = vec![
            image("sha256:1", false),
            image("old", false),
            image("pause", true),
        ];
        state.image_filesystem = Some(ImageFilesystem {
            mount_point: PathBuf::from("/images"),
            used_bytes: 30,
            used_inodes: 3,
        });
    }
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    stand.turn(IMAGE_GC_PERIOD).await;
    let ids = || {
        let state = stand.runtime.state.lock().unwrap();
        let ids = state.image_list.iter().map(|image| image.id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(ids().len(), 3, "the disk is half full");
    *stand.node.stats.disk.lock().unwrap() = FilesystemLevel {
        id: 1,
        bytes: Level {
            capacity: 1000,
            available: 100,
        },
        inodes: Level::default(),
    };
    stand.turn(IMAGE_GC_PERIOD).await;
    assert_eq!(ids(), ["sha256:1", "pause"]);
    let told = messages(&stand, "FreeDiskSpaceFailed");
    assert_eq!(
        told,
        [
            "Failed to garbage collect required amount of images. Attempted to free 100 bytes, but \
          only found 10 bytes eligible to free."
        ]
    );
    assert!(
        messages(&stand, "ImageGCFailed").is_empty(),
        "once is no news"
    );
    stand.turn(IMAGE_GC_PERIOD).await;
    assert_eq!(messages(&stand, "ImageGCFailed").len(), 1);
}
