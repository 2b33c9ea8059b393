//! A node that runs short, pods that grow, a machine that is switched off: from the doors to the
//! status.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerPort, Pod, PodCondition, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use swiftlet_model::ids::PodUid;
use swiftlet_model::node_stats::{DiskUse, Level, PodDisk};

use crate::testing::stand::{Stand, pod, with_empty_dir};

fn asks(uid: &str, cpu: &str, memory: &str) -> Pod {
    let mut pod = pod(uid);
    let list = [("cpu", cpu), ("memory", memory)]
        .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
        requests: Some(list.clone().into()),
        limits: Some(list.into()),
        ..ResourceRequirements::default()
    });
    pod
}

fn condition(stand: &Stand, uid: &str, name: &str) -> Option<PodCondition> {
    let status = stand.control_plane.status(uid)?;
    let mut all = status.conditions.into_iter().flatten();
    all.find(|one| one.type_ == name)
}

fn level(available: u64) -> Level {
    Level {
        capacity: 1 << 30,
        available,
    }
}

/// Runs these pods.
async fn with(pods: &[&Pod]) -> Stand {
    let stand = Stand::new().await;
    for pod in pods {
        stand.upsert(pod).await;
    }
    stand.seconds(3).await;
    for pod in pods {
        let uid = pod.metadata.uid.as_deref().unwrap();
        assert_eq!(stand.phase(uid).as_deref(), Some("Running"), "{uid}");
    }
    stand
}

#[tokio::test(start_paused = true)]
async fn the_greediest_pod_goes_when_memory_is_short_and_the_others_stay() {
    let (modest, greedy) = (asks("modest", "10m", "100Mi"), pod("greedy"));
    let stand = with(&[&modest, &greedy]).await;
    assert_eq!(
        *stand.node.stats.pod_reads.lock().unwrap(),
        0,
        "nobody was asked for"
    );
    let used = |uid: &str, bytes| (PodUid::from(uid), bytes);
    *stand.node.stats.pod_memory.lock().unwrap() =
        [used("modest", 90 << 20), used("greedy", 50 << 20)].into();
    *stand.node.stats.memory.lock().unwrap() = level(80 << 20);
    stand.node.stats.hints.send_modify(|count| *count += 1);
    stand.turn(Duration::from_millis(500)).await;
    *stand.node.stats.memory.lock().unwrap() = level(1 << 29);
    stand.seconds(5).await;
    let status = stand.control_plane.status("greedy").unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let low = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. ";
    assert_eq!(status.message.as_deref(), Some(low));
    let target = condition(&stand, "greedy", "DisruptionTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("TerminationByKubelet"));
    stand.seconds(30).await;
    assert_eq!(stand.phase("modest").as_deref(), Some("Running"));
    // The condition stays for its transition period, and pods that ask for nothing are refused.
    stand.upsert(&pod("late")).await;
    stand.seconds(1).await;
    let late = stand.control_plane.status("late").unwrap();
    assert_eq!(late.reason.as_deref(), Some("Evicted"));
    let why = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(late.message.as_deref(), Some(why));
    stand.seconds(300).await;
    stand.upsert(&pod("later")).await;
    stand.seconds(3).await;
    assert_eq!(stand.phase("later").as_deref(), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_fills_its_empty_dir_is_evicted() {
    let full = with_empty_dir("full");
    let stand = with(&[&full]).await;
    let wrote = DiskUse {
        bytes: 2 << 20,
        inodes: 2,
    };
    let disk = PodDisk {
        volumes: [("data".to_owned(), wrote)].into(),
        ..PodDisk::default()
    };
    stand
        .node
        .stats
        .pod_disk
        .lock()
        .unwrap()
        .insert("full".into(), disk);
    stand.seconds(15).await;
    let status = stand.control_plane.status("full").unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let why = "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". ";
    assert_eq!(status.message.as_deref(), Some(why));
}

#[tokio::test(start_paused = true)]
async fn layers_are_counted_only_of_pods_that_limit_what_they_write() {
    let mut limited = pod("limited");
    let limits = [("ephemeral-storage".to_owned(), Quantity("1Mi".into()))].into();
    limited.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
        limits: Some(limits),
        ..ResourceRequirements::default()
    });
    let stand = with(&[&limited, &pod("free"), &with_empty_dir("dir")]).await;
    let id = stand.control_plane.status("limited").unwrap();
    let id = id.container_statuses.unwrap()[0]
        .container_id
        .clone()
        .unwrap();
    let wrote = DiskUse {
        bytes: 2 << 20,
        inodes: 2,
    };
    let disk = PodDisk {
        layers: [(id.rsplit('/').next().unwrap().to_owned(), wrote)].into(),
        ..PodDisk::default()
    };
    let stats = &stand.node.stats;
    stats
        .pod_disk
        .lock()
        .unwrap()
        .insert("limited".into(), disk);
    stand.seconds(25).await;
    let status = stand.control_plane.status("limited").unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let why = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(status.message.as_deref(), Some(why));
    let asked = stats.disk_asked.lock().unwrap().clone();
    let asked: Vec<_> = asked
        .iter()
        .map(|(pod, layers)| (pod.as_str(), *layers))
        .collect();
    // A pod without limits is not looked at.
    assert_eq!(asked, [("dir", false), ("limited", true)]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_grows_while_it_runs_and_waits_if_there_is_no_room() {
    let small = asks("a", "1", "100Mi");
    let other = asks("b", "2", "100Mi");
    let stand = with(&[&small, &other]).await;
    let limits = |uid: &str| {
        let all = stand.node.pod_limits.lock().unwrap();
        all[&PodUid::from(uid)].clone()
    };
    assert_eq!(limits("a").cpu_shares, 1024);
    let larger = asks("a", "2", "100Mi");
    stand.upsert(&larger).await;
    stand.seconds(2).await;
    assert_eq!(limits("a").cpu_shares, 2048);
    let calls = stand.runtime.calls();
    let updates: Vec<_> = calls
        .iter()
        .filter(|call| call.starts_with("update "))
        .collect();
    assert_eq!(updates.len(), 1);
    assert!(updates[0].ends_with("(200000, 104857600)"), "{updates:?}");
    let shown = |uid: &str| {
        let status = stand.control_plane.status(uid).unwrap();
        let container = status.container_statuses.unwrap().remove(0);
        container.resources.unwrap().requests.unwrap()["cpu"]
            .0
            .clone()
    };
    assert_eq!(shown("a"), "2");
    assert!(condition(&stand, "a", "PodResizePending").is_none());
    // Four CPUs are all there is: three are more than the other pod leaves.
    stand.upsert(&asks("a", "3", "100Mi")).await;
    stand.seconds(2).await;
    let pending = condition(&stand, "a", "PodResizePending").unwrap();
    assert_eq!(pending.reason.as_deref(), Some("Deferred"));
    assert_eq!(shown("a"), "2");
    stand.delete(&other, 0).await;
    stand.seconds(5).await;
    assert!(condition(&stand, "a", "PodResizePending").is_none());
    assert_eq!((shown("a").as_str(), limits("a").cpu_shares), ("3", 3072));
    stand.upsert(&asks("a", "30", "100Mi")).await;
    stand.seconds(2).await;
    let pending = condition(&stand, "a", "PodResizePending").unwrap();
    assert_eq!(pending.reason.as_deref(), Some("Infeasible"));
    assert_eq!(
        stand.runtime.container("main").attempt,
        0,
        "nothing was restarted"
    );
}

#[tokio::test(start_paused = true)]
async fn memory_is_not_cut_below_what_is_used() {
    let large = asks("a", "1", "100Mi");
    let stand = with(&[&large]).await;
    let id = stand.runtime.container("main").id.to_string();
    let used = [(id, 90 << 20)].into();
    stand
        .node
        .stats
        .container_memory
        .lock()
        .unwrap()
        .insert("a".into(), used);
    stand.upsert(&asks("a", "1", "50Mi")).await;
    stand.seconds(2).await;
    let progress = condition(&stand, "a", "PodResizeInProgress").unwrap();
    assert_eq!(progress.reason.as_deref(), Some("Error"));
    let message = progress.message.unwrap();
    assert!(message.contains("below current usage"), "{message}");
    stand.node.stats.container_memory.lock().unwrap().clear();
    stand.seconds(15).await;
    assert!(condition(&stand, "a", "PodResizeInProgress").is_none());
    let limits = stand.node.pod_limits.lock().unwrap()[&PodUid::from("a")].clone();
    assert_eq!(limits.memory_limit_bytes, 50 << 20);
}

#[tokio::test(start_paused = true)]
async fn what_the_pods_of_a_class_are_promised_is_their_weight() {
    let mut burstable = asks("a", "2", "100Mi");
    let container = &mut burstable.spec.as_mut().unwrap().containers[0];
    container.resources.as_mut().unwrap().limits = None;
    let stand = with(&[&burstable]).await;
    assert_eq!(*stand.node.class_shares.lock().unwrap(), Some(2048));
    let all = stand.node.all_pods_limits.lock().unwrap().clone().unwrap();
    assert_eq!(all.cpu_shares, 4096);
    stand.delete(&burstable, 0).await;
    stand.seconds(5).await;
    assert_eq!(*stand.node.class_shares.lock().unwrap(), Some(2));
}

#[tokio::test(start_paused = true)]
async fn when_the_machine_is_switched_off_critical_pods_end_last() {
    let (web, mut dns) = (pod("web"), pod("dns"));
    dns.spec.as_mut().unwrap().priority = Some(2_000_000_000);
    let stand = with(&[&web, &dns]).await;
    {
        let mut state = stand.runtime.state.lock().unwrap();
        state.moments.clear();
        state
            .stop_takes
            .insert("main".into(), Duration::from_secs(5));
    }
    let shutdown = &stand.node.shutdown;
    assert_eq!(
        *shutdown.delay.lock().unwrap(),
        Some(Duration::from_secs(30))
    );
    shutdown.begins.send_replace(true);
    stand.seconds(1).await;
    stand.upsert(&pod("late")).await;
    stand.seconds(40).await;
    let late = stand.control_plane.status("late").unwrap();
    assert_eq!(late.reason.as_deref(), Some("NodeShutdown"));
    for uid in ["web", "dns"] {
        let status = stand.control_plane.status(uid).unwrap();
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.reason.as_deref(), Some("Terminated"));
    }
    let moments = stand.runtime.state.lock().unwrap().moments.clone();
    let stops = moments.iter().filter(|one| one.stop.is_some());
    let stops: Vec<_> = stops.map(|one| (one.pod.as_str(), one.at)).collect();
    let [("web", first), ("dns", last)] = stops[..] else {
        panic!("{stops:?}");
    };
    assert!(
        last - first >= Duration::from_secs(5),
        "the other one had ended"
    );
    assert!(
        *shutdown.released.lock().unwrap(),
        "the machine need not wait any longer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_object_is_gone_keeps_no_other_out_though_it_has_not_ended_yet() {
    let serving = |uid: &str| {
        let mut pod = pod(uid);
        pod.spec.as_mut().unwrap().containers[0].ports = Some(vec![ContainerPort {
            container_port: 80,
            host_port: Some(8080),
            ..ContainerPort::default()
        }]);
        pod
    };
    let (first, second) = (serving("first"), serving("second"));
    let stand = with(&[&first]).await;
    stand.runtime.state.lock().unwrap().unstoppable = Some(PodUid::from("first"));
    stand.list(&[]).await;
    stand.upsert(&second).await;
    stand.seconds(1).await;
    assert_eq!(stand.phase("second").as_deref(), Some("Running"));
}
