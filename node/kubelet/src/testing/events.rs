//! Lifecycle events that are late, and those of a pod that the runtime hangs on.

use swiftlet_model::ids::{ContainerId, PodUid};
use swiftlet_model::lifecycle::{KernelExit, LifecycleKind};
use swiftlet_model::runtime::ProcessOf;

use crate::testing::stand::{Stand, pod};

/// The last condition `Ready` that the control plane was told of.
fn node_is_ready(stand: &Stand) -> bool {
    let told = stand.control_plane.told.lock().unwrap();
    let status = told.nodes.last().and_then(|node| node.status.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

#[tokio::test(start_paused = true)]
async fn an_event_older_than_the_last_answer_changes_nothing_that_is_shown() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let first = stand.runtime.container("main").id;
    stand.die("a", &first, 3).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    let second = stand.runtime.container("main");
    let shown = stand.control_plane.status("a");
    let exit = Some(KernelExit {
        code: 9,
        signal: 0,
        oom_killed: false,
    });
    // Of the generation before, and of one that the runtime has forgotten.
    for container in [first, ContainerId::from("c99")] {
        let started = LifecycleKind::ContainerStarted {
            container: container.clone(),
        };
        stand.hint("a", started).await;
        let died = LifecycleKind::ContainerDied { container, exit };
        stand.hint("a", died).await;
    }
    stand.seconds(30).await;
    assert_eq!(stand.control_plane.status("a"), shown);
    assert_eq!(
        stand.runtime.container("main").id,
        second.id,
        "nothing was restarted"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_runtime_hangs_on_delays_no_other_and_the_node_stays_ready() {
    let stand = Stand::new().await;
    for uid in ["a", "b"] {
        stand.upsert(&pod(uid)).await;
    }
    stand.seconds(2).await;
    assert!(stand.is_ready("a") && stand.is_ready("b"));
    stand.runtime.state.lock().unwrap().query_hangs = vec![PodUid::from("a")];
    for uid in ["a", "b"] {
        stand.hint(uid, LifecycleKind::Changed).await;
    }
    stand.seconds(300).await;
    let of_b = {
        let state = stand.runtime.state.lock().unwrap();
        let found = state.pod(&PodUid::from("b"));
        found.expect("it runs").containers[0].id.clone()
    };
    stand.die("b", &of_b, 1).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("b"), "restarted while the other hangs");
    stand.upsert(&pod("c")).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("c"), "and new ones start");
    assert!(stand.is_ready("a"), "what was last known stays shown");
    assert!(node_is_ready(&stand));
}

#[tokio::test(start_paused = true)]
async fn what_the_runtime_has_started_is_told_to_the_tracker() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let container = stand.runtime.container("main").id;
    let told = stand.node.told_running.lock().unwrap().clone();
    let uid = PodUid::from("a");
    assert_eq!(
        told,
        [
            (uid.clone(), "s1".into(), ProcessOf::Sandbox),
            (uid, container, ProcessOf::Container)
        ]
    );
}
