//! A node in trouble: it is short of something, its runtime hangs, what it writes is not taken.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use swiftlet_model::ids::PodUid;
use swiftlet_model::node_stats::{DiskUse, FilesystemLevel, Level, PodDisk, SystemOom};

use crate::node_status::is_ready;
use crate::options::SANDBOX_LIMIT;
use crate::testing::stand::{Stand, pod, with_empty_dir};

#[tokio::test(start_paused = true)]
async fn that_the_machine_had_no_memory_left_is_told_of_at_the_node() {
    let stand = Stand::new().await;
    for pid in [412, 413] {
        let process = "greedy (1)".to_owned();
        let oom = SystemOom { process, pid };
        stand.node.stats.ooms.send(oom).await.unwrap();
    }
    stand.seconds(1).await;
    let told = stand.control_plane.told.lock().unwrap();
    let of_oom = |event: &&Event| event.reason.as_deref() == Some("SystemOOM");
    let events: Vec<_> = told.events.iter().filter(of_oom).collect();
    let messages = events.iter().map(|event| event.message.as_deref().unwrap());
    assert_eq!(
        messages.collect::<Vec<_>>(),
        [412, 413].map(|pid| {
            format!("System OOM encountered, victim process: greedy (1), pid: {pid}")
        })
    );
    let event = events[0];
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.kind.as_deref(), Some("Node"));
}

fn level(available: u64) -> Level {
    Level {
        capacity: 1 << 30,
        available,
    }
}

fn asks_cpu(uid: &str, cpu: &str) -> Pod {
    let mut pod = pod(uid);
    let list = [("cpu".to_owned(), Quantity(cpu.to_owned()))];
    pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
        requests: Some(list.into()),
        ..ResourceRequirements::default()
    });
    pod
}

/// Runs these pods, whose containers take an hour to end.
async fn with_slow(pods: &[&Pod]) -> Stand {
    let stand = Stand::new().await;
    let hour = Duration::from_hours(1);
    let takes = &stand.runtime.state;
    takes.lock().unwrap().stop_takes.insert("main".into(), hour);
    for pod in pods {
        stand.upsert(pod).await;
    }
    stand.seconds(3).await;
    stand
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_already_has_no_longer_than_eviction_gives() {
    let (slow, other) = (pod("slow"), pod("other"));
    let stand = with_slow(&[&slow, &other]).await;
    let used = |uid: &str, bytes| (PodUid::from(uid), bytes);
    *stand.node.stats.pod_memory.lock().unwrap() =
        [used("slow", 90 << 20), used("other", 50 << 20)].into();
    stand.delete(&slow, 600).await;
    stand.seconds(2).await;
    *stand.node.stats.memory.lock().unwrap() = level(80 << 20);
    stand.node.stats.hints.send_modify(|count| *count += 1);
    stand.turn(Duration::from_millis(100)).await;
    *stand.node.stats.memory.lock().unwrap() = level(1 << 29);
    stand.seconds(10).await;
    assert!(stand.control_plane.is_gone("slow"));
    let status = stand.control_plane.status("slow").unwrap();
    assert_ne!(
        status.reason.as_deref(),
        Some("Evicted"),
        "it was deleted before"
    );
    assert_eq!(stand.phase("other").as_deref(), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_already_has_no_longer_than_the_machine_gives() {
    let slow = pod("slow");
    let stand = with_slow(&[&slow]).await;
    stand.delete(&slow, 600).await;
    stand.seconds(2).await;
    stand.node.shutdown.begins.send_replace(true);
    stand.seconds(25).await;
    assert!(stand.control_plane.is_gone("slow"));
}

#[tokio::test(start_paused = true)]
async fn when_an_evicted_pod_does_not_end_another_is_next() {
    let full = with_empty_dir("stuck");
    let stand = Stand::new().await;
    stand.upsert(&full).await;
    stand.upsert(&pod("greedy")).await;
    stand.seconds(3).await;
    let disk = PodDisk {
        volumes: [(
            "data".to_owned(),
            DiskUse {
                bytes: 2 << 20,
                inodes: 2,
            },
        )]
        .into(),
        ..PodDisk::default()
    };
    stand
        .node
        .stats
        .pod_disk
        .lock()
        .unwrap()
        .insert("stuck".into(), disk);
    *stand.node.stats.memory.lock().unwrap() = level(80 << 20);
    stand.runtime.state.lock().unwrap().unstoppable = Some(PodUid::from("stuck"));
    stand.seconds(60).await;
    let status = stand.control_plane.status("greedy").unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
}

#[tokio::test(start_paused = true)]
async fn memory_is_looked_at_while_the_runtime_does_not_answer() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(3).await;
    stand.runtime.state.lock().unwrap().image_filesystem_hangs = true;
    *stand.node.stats.memory.lock().unwrap() = level(80 << 20);
    stand.seconds(20).await;
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
}

#[tokio::test(start_paused = true)]
async fn memory_is_looked_at_while_files_are_counted() {
    let stand = Stand::new().await;
    *stand.node.stats.pod_disk_hangs.lock().unwrap() = true;
    stand.upsert(&with_empty_dir("writes")).await;
    // Now its files are counted because of its limit, and for the disk's sake.
    *stand.node.stats.disk.lock().unwrap() = FilesystemLevel {
        id: 1,
        bytes: level(1 << 20),
        inodes: level(1 << 29),
    };
    stand.seconds(20).await;
    assert_eq!(stand.phase("writes").as_deref(), Some("Running"));
    *stand.node.stats.disk.lock().unwrap() = FilesystemLevel {
        id: 1,
        bytes: level(1 << 29),
        inodes: level(1 << 29),
    };
    *stand.node.stats.memory.lock().unwrap() = level(80 << 20);
    stand.seconds(20).await;
    let status = stand.control_plane.status("writes").unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    assert!(status.message.unwrap().contains("memory"));
}

#[tokio::test(start_paused = true)]
async fn on_a_full_disk_the_containers_of_ended_pods_go_before_others_must() {
    let stand = Stand::new().await;
    let mut done = pod("done");
    done.spec.as_mut().unwrap().restart_policy = Some("Never".into());
    stand.upsert(&done).await;
    stand.seconds(3).await;
    let ended = stand.runtime.container("main");
    stand.die("done", &ended.id, 0).await;
    stand.upsert(&pod("runs")).await;
    stand.seconds(3).await;
    assert_eq!(stand.phase("done").as_deref(), Some("Succeeded"));
    assert_eq!(stand.runtime.state.lock().unwrap().sandboxes.len(), 2);
    let files = &stand.node.log_files.files;
    files
        .lock()
        .unwrap()
        .insert("/logs/default_done_done/main/0.log".into(), 1);
    let before = stand.control_plane.status("done");
    *stand.node.stats.disk.lock().unwrap() = FilesystemLevel {
        id: 1,
        bytes: level(1 << 20),
        inodes: level(1 << 29),
    };
    stand.seconds(12).await;
    let calls = stand.runtime.calls();
    let removed = format!("remove_sandbox {}", ended.sandbox);
    let removed = calls.iter().position(|call| *call == removed);
    let evicted = calls.iter().position(|call| call.starts_with("stop "));
    let (Some(removed), Some(evicted)) = (removed, evicted) else {
        panic!("{calls:?}");
    };
    assert!(removed < evicted, "{calls:?}");
    assert!(files.lock().unwrap().is_empty(), "its logs as well");
    assert_eq!(
        stand.control_plane.status("done"),
        before,
        "its status stays"
    );
    // It can still be deleted.
    stand.delete(&done, 0).await;
    stand.seconds(3).await;
    assert!(stand.control_plane.is_gone("done"));
}

#[tokio::test(start_paused = true)]
async fn what_all_pods_may_use_is_written_again_if_it_was_not() {
    let stand = Stand::new().await;
    *stand.node.root_failures.lock().unwrap() = 1;
    stand
        .facts
        .send_modify(|facts| facts.reserved.cpu_milli = 1000);
    stand.seconds(2).await;
    let shares = || {
        let all = stand.node.all_pods_limits.lock().unwrap().clone();
        all.map(|one| one.cpu_shares)
    };
    assert_eq!(shares(), Some(4096));
    stand.seconds(15).await;
    assert_eq!(shares(), Some(3072));
}

#[tokio::test(start_paused = true)]
async fn a_node_stays_ready_while_its_runtime_is_silent_for_a_moment() {
    let stand = Stand::new().await;
    stand.seconds(5).await;
    let ready = || {
        let told = stand.control_plane.told.lock().unwrap();
        is_ready(told.nodes.last().unwrap())
    };
    assert!(ready());
    stand.runtime.state.lock().unwrap().down = true;
    stand.seconds(25).await;
    assert!(ready());
    stand.seconds(20).await;
    assert!(!ready());
    stand.runtime.state.lock().unwrap().down = false;
    stand.seconds(2).await;
    assert!(ready());
}

#[tokio::test(start_paused = true)]
async fn a_new_address_of_the_node_is_shown_at_once() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(3).await;
    stand
        .facts
        .send_modify(|facts| facts.internal_ips = vec!["10.0.0.9".into()]);
    stand.seconds(2).await;
    let status = stand.control_plane.status("a").unwrap();
    assert_eq!(status.host_ip.as_deref(), Some("10.0.0.9"));
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_hang_again_and_again_leave_places_for_others() {
    let stand = Stand::new().await;
    let hanging = ["a", "b", "c", "d", "e", "f", "g", "h"];
    stand.runtime.state.lock().unwrap().sandbox_hangs = hanging.map(PodUid::from).into();
    for uid in hanging {
        stand.upsert(&pod(uid)).await;
    }
    stand.turn(SANDBOX_LIMIT).await;
    stand.seconds(5).await;
    stand.upsert(&pod("z")).await;
    stand.seconds(3).await;
    assert!(stand.is_ready("z"));
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_waits_for_room_waits_over_a_restart_of_the_agent() {
    let (small, other) = (asks_cpu("a", "1"), asks_cpu("b", "2"));
    let stand = Stand::new().await;
    stand.upsert(&small).await;
    stand.upsert(&other).await;
    stand.seconds(3).await;
    let large = asks_cpu("a", "3");
    let pending = |stand: &Stand| {
        let status = stand.control_plane.status("a").unwrap();
        let mut all = status.conditions.into_iter().flatten();
        let found = all.find(|one| one.type_ == "PodResizePending");
        found.and_then(|one| one.reason)
    };
    stand.upsert(&large).await;
    stand.seconds(2).await;
    assert_eq!(pending(&stand).as_deref(), Some("Deferred"));
    let stand = stand.restart().await;
    stand.list(&[&large, &other]).await;
    stand.seconds(5).await;
    assert_eq!(pending(&stand).as_deref(), Some("Deferred"));
    let shares = |stand: &Stand| {
        let limits = stand.node.pod_limits.lock().unwrap();
        limits[&PodUid::from("a")].cpu_shares
    };
    assert_eq!(shares(&stand), 1024);
    stand.delete(&other, 0).await;
    stand.seconds(5).await;
    assert_eq!((pending(&stand), shares(&stand)), (None, 3072));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_crashes_again_and_again_leaves_two_records_and_two_logs() {
    let stand = Stand::new().await;
    stand.upsert(&pod("a")).await;
    stand.seconds(1).await;
    let folder = "/logs/default_a_a/main";
    for (file, size) in [("0.log", 1), ("0.log.20240102-150405", 1), ("1.log", 1)] {
        let path = format!("{folder}/{file}").into();
        stand
            .node
            .log_files
            .files
            .lock()
            .unwrap()
            .insert(path, size);
    }
    stand.die("a", &stand.runtime.container("main").id, 1).await;
    stand.seconds(3).await;
    assert_eq!(
        stand.node.log_files.names().len(),
        3,
        "the previous run is 0"
    );
    stand.die("a", &stand.runtime.container("main").id, 1).await;
    stand.seconds(30).await;
    assert!(stand.is_ready("a"));
    let attempts = || {
        let state = stand.runtime.state.lock().unwrap();
        let all = state.containers.iter().map(|one| one.attempt);
        all.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(attempts(), [1, 2].into());
    assert_eq!(stand.node.log_files.names(), ["1.log"]);
}

#[tokio::test(start_paused = true)]
async fn what_fails_again_with_the_same_words_is_one_event_that_counts() {
    let stand = Stand::new().await;
    stand.runtime.state.lock().unwrap().sandbox_hangs = vec![PodUid::from("a")];
    stand.upsert(&pod("a")).await;
    stand.turn(SANDBOX_LIMIT * 4).await;
    let told = stand.control_plane.told.lock().unwrap();
    let failed = |reason: &Option<String>| reason.as_deref() == Some("FailedCreatePodSandBox");
    let events = told.events.iter().filter(|event| failed(&event.reason));
    let events: Vec<_> = events
        .map(|event| (event.metadata.name.as_deref(), event.count))
        .collect();
    let name = events[0].0;
    assert_eq!(events, [(name, Some(1)), (name, Some(2)), (name, Some(3))]);
}
