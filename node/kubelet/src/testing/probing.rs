//! Probes of pods on the fakes.

use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ExecAction, GRPCAction, HTTPGetAction, Pod, PodReadinessGate, Probe,
    TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use swiftlet_model::probes::ProbeAnswer;
use swiftlet_model::runtime::{ExecOutput, RuntimeError};

use crate::testing::stand::{Stand, pod};

fn http() -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some("/healthz".into()),
            port: IntOrString::String("web".into()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(1),
        ..Probe::default()
    }
}

fn exec() -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(vec!["check".into()]),
        }),
        period_seconds: Some(1),
        ..Probe::default()
    }
}

fn with(change: impl FnOnce(&mut Container)) -> Pod {
    let mut pod = pod("a");
    let main = &mut pod.spec.as_mut().unwrap().containers[0];
    main.ports = Some(vec![ContainerPort {
        name: Some("web".into()),
        container_port: 8080,
        ..ContainerPort::default()
    }]);
    change(main);
    pod
}

fn failure() -> ProbeAnswer {
    ProbeAnswer::Failure("no".into())
}

fn condition(stand: &Stand, name: &str) -> (String, Option<String>) {
    let status = stand.control_plane.status("a").unwrap();
    let all = status.conditions.unwrap();
    let found = all.into_iter().find(|one| one.type_ == name).unwrap();
    (found.status, found.reason)
}

fn restarts(stand: &Stand) -> u32 {
    stand.runtime.container("main").attempt
}

/// As the API holds them: what is said again counts up the Event that is there.
fn events(stand: &Stand, reason: &str) -> Vec<String> {
    let told = stand.control_plane.told.lock().unwrap();
    let all = told.events.iter();
    all.filter(|one| one.reason.as_deref() == Some(reason) && one.count == Some(1))
        .filter_map(|one| one.message.clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_ready_when_its_probe_says_so_and_not_before() {
    let stand = Stand::new().await;
    stand.node.probes.set(failure());
    stand
        .upsert(&with(|one| one.readiness_probe = Some(http())))
        .await;
    stand.seconds(5).await;
    assert_eq!(stand.phase("a").as_deref(), Some("Running"));
    assert!(!stand.is_ready("a"));
    let status = stand.control_plane.status("a").unwrap();
    let main = status.container_statuses.unwrap().remove(0);
    assert_eq!((main.started, main.ready), (Some(true), false));
    assert_eq!(stand.node.probes.asked()[0], "http 10.1.0.7:8080/healthz");
    assert_eq!(events(&stand, "Unhealthy"), ["Readiness probe failed: no"]);
    stand.node.probes.set(ProbeAnswer::Success("yes".into()));
    stand.turn(Duration::from_millis(1100)).await;
    assert!(
        stand.is_ready("a"),
        "one success is enough, and is shown at once"
    );
    stand.node.probes.set(failure());
    stand.seconds(2).await;
    assert!(stand.is_ready("a"), "two failures are not enough");
    stand.turn(Duration::from_millis(1100)).await;
    assert!(!stand.is_ready("a"), "three are");
    assert_eq!(restarts(&stand), 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_waits_for_its_delay_and_keeps_its_period() {
    let stand = Stand::new().await;
    let probe = Probe {
        initial_delay_seconds: Some(5),
        period_seconds: Some(3),
        ..http()
    };
    stand
        .upsert(&with(|one| one.readiness_probe = Some(probe)))
        .await;
    stand.seconds(4).await;
    assert!(stand.node.probes.asked().is_empty());
    stand.seconds(2).await;
    assert_eq!(stand.node.probes.asked().len(), 1);
    assert!(stand.is_ready("a"));
    stand.seconds(3).await;
    assert_eq!(stand.node.probes.asked().len(), 2);
    stand.seconds(30).await;
    assert_eq!(stand.node.probes.asked().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_does_not_live_is_restarted_with_the_probes_grace_period() {
    let stand = Stand::new().await;
    let probe = Probe {
        termination_grace_period_seconds: Some(7),
        ..exec()
    };
    let fails = || {
        Ok(ExecOutput {
            stdout: b"out ".to_vec(),
            stderr: b"err".to_vec(),
            exit_code: 1,
        })
    };
    stand.runtime.state.lock().unwrap().exec_answers = [fails(), fails(), fails()].into();
    stand
        .upsert(&with(|one| one.liveness_probe = Some(probe)))
        .await;
    stand.turn(Duration::from_millis(1500)).await;
    assert_eq!(restarts(&stand), 0);
    assert!(
        stand.is_ready("a"),
        "liveness begins as success, and says nothing of readiness"
    );
    stand.seconds(3).await;
    assert_eq!(restarts(&stand), 1, "{:?}", stand.runtime.calls());
    stand.seconds(30).await;
    assert_eq!(restarts(&stand), 1, "the new container is well");
    let said = events(&stand, "Unhealthy");
    assert_eq!(said, ["Liveness probe failed: out err"]);
    let killing = events(&stand, "Killing");
    assert_eq!(
        killing,
        ["Container main failed liveness probe, will be restarted"]
    );
}

#[tokio::test(start_paused = true)]
async fn the_startup_probe_gates_the_others_and_ends_what_never_starts() {
    let stand = Stand::new().await;
    stand.node.probes.set(failure());
    let startup = Probe {
        failure_threshold: Some(5),
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(8080),
            ..TCPSocketAction::default()
        }),
        http_get: None,
        ..http()
    };
    let pod = with(|one| {
        one.startup_probe = Some(startup);
        one.readiness_probe = Some(http());
        one.liveness_probe = Some(http());
    });
    stand.upsert(&pod).await;
    stand.turn(Duration::from_millis(3500)).await;
    let asked = stand.node.probes.asked();
    assert!(
        asked.iter().all(|one| one == "tcp 10.1.0.7:8080"),
        "{asked:?}"
    );
    let status = stand.control_plane.status("a").unwrap();
    let main = status.container_statuses.unwrap().remove(0);
    assert_eq!((main.started, main.ready), (Some(false), false));
    stand.node.probes.set(ProbeAnswer::Success(String::new()));
    stand.turn(Duration::from_millis(1100)).await;
    assert!(
        stand.is_ready("a"),
        "readiness is asked as soon as it has started"
    );
    let tcp = |stand: &Stand| {
        let asked = stand.node.probes.asked();
        asked.iter().filter(|one| one.starts_with("tcp")).count()
    };
    let before = tcp(&stand);
    stand.seconds(10).await;
    assert_eq!(tcp(&stand), before, "what has started is not asked again");
}

#[tokio::test(start_paused = true)]
async fn what_never_starts_is_restarted() {
    let stand = Stand::new().await;
    stand.node.probes.set(failure());
    stand
        .upsert(&with(|one| one.startup_probe = Some(http())))
        .await;
    stand.turn(Duration::from_millis(2900)).await;
    assert_eq!(restarts(&stand), 0, "it has three periods");
    stand.turn(Duration::from_millis(500)).await;
    assert_eq!(restarts(&stand), 1);
    let killing = events(&stand, "Killing");
    assert_eq!(
        killing,
        ["Container main failed startup probe, will be restarted"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_counts_as_a_failure_and_delays_nobody() {
    let stand = Stand::new().await;
    *stand.node.probes.delay.lock().unwrap() = Duration::from_secs(1000);
    let slow = Probe {
        timeout_seconds: Some(100),
        failure_threshold: Some(1),
        ..http()
    };
    stand
        .upsert(&with(|one| one.liveness_probe = Some(slow)))
        .await;
    let mut other = pod("b");
    other.spec.as_mut().unwrap().containers[0].readiness_probe = Some(exec());
    stand.upsert(&other).await;
    stand.seconds(2).await;
    assert!(stand.is_ready("b"));
    stand.seconds(90).await;
    assert_eq!(stand.node.probes.asked().len(), 1, "one at a time");
    assert!(events(&stand, "Unhealthy").is_empty());
    stand.seconds(10).await;
    let said = events(&stand, "Unhealthy");
    assert_eq!(said, ["Liveness probe failed: context deadline exceeded"]);
    assert_eq!(events(&stand, "Killing").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_run_the_command_says_nothing_and_one_that_times_out_does() {
    let stand = Stand::new().await;
    stand
        .upsert(&with(|one| one.readiness_probe = Some(exec())))
        .await;
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    let refused = || {
        Err(RuntimeError::Refused {
            call: "ExecSync",
            message: "refused".into(),
        })
    };
    // Each probe is tried three times.
    let many: Vec<_> = (0..30).map(|_| refused()).collect();
    stand.runtime.state.lock().unwrap().exec_answers = many.into();
    stand.seconds(9).await;
    assert!(stand.is_ready("a"), "the last result stays");
    let said = events(&stand, "Unhealthy");
    assert!(said[0].starts_with("Readiness probe errored and resulted in unknown state: "));
    let late = || {
        Err(RuntimeError::Timeout {
            call: "ExecSync",
            limit_ms: 1000,
        })
    };
    let many: Vec<_> = (0..10).map(|_| late()).collect();
    stand.runtime.state.lock().unwrap().exec_answers = many.into();
    stand.seconds(4).await;
    assert!(!stand.is_ready("a"));
    let said = events(&stand, "Unhealthy");
    assert_eq!(
        said.last().unwrap(),
        "Readiness probe failed: command \"check\" timed out"
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_of_the_agent_nothing_flips_until_a_probe_says_so() {
    let stand = Stand::new().await;
    let probe = Probe {
        period_seconds: Some(10),
        ..http()
    };
    let pod = with(|one| {
        one.readiness_probe = Some(probe.clone());
        one.startup_probe = Some(probe);
    });
    stand.upsert(&pod).await;
    stand.seconds(15).await;
    assert!(stand.is_ready("a"));
    let published = stand.control_plane.told.lock().unwrap().statuses.len();
    stand.node.probes.set(failure());
    let stand = stand.restart().await;
    stand.list(&[&pod]).await;
    stand.seconds(20).await;
    assert!(stand.is_ready("a"), "two failures at most");
    let now = stand.control_plane.told.lock().unwrap().statuses.len();
    assert_eq!(now, published, "nothing new to say");
    stand.seconds(20).await;
    assert!(!stand.is_ready("a"));
    assert_eq!(restarts(&stand), 0, "it had started before");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_is_asked_for_readiness_alone() {
    let stand = Stand::new().await;
    let pod = with(|one| {
        one.readiness_probe = Some(http());
        one.liveness_probe = Some(exec());
    });
    stand.upsert(&pod).await;
    stand.seconds(3).await;
    stand.runtime.state.lock().unwrap().down = true;
    stand.delete(&pod, 30).await;
    stand.seconds(1).await;
    let (asked, calls) = (stand.node.probes.asked().len(), stand.runtime.calls().len());
    stand.node.probes.set(failure());
    stand.seconds(5).await;
    assert!(stand.node.probes.asked().len() >= asked + 4);
    assert_eq!(stand.runtime.calls().len(), calls);
    assert!(!stand.is_ready("a"), "it takes no more traffic");
    stand.runtime.state.lock().unwrap().down = false;
    stand.seconds(60).await;
    assert!(stand.control_plane.is_gone("a"));
    let asked = stand.node.probes.asked().len();
    stand.seconds(60).await;
    assert_eq!(
        stand.node.probes.asked().len(),
        asked,
        "nobody asks what is gone"
    );
}

#[tokio::test(start_paused = true)]
async fn a_named_port_that_does_not_exist_says_nothing_and_does_not_spin() {
    let stand = Stand::new().await;
    let pod = with(|one| {
        one.ports = None;
        one.readiness_probe = Some(http());
    });
    stand.upsert(&pod).await;
    stand.seconds(20).await;
    assert!(!stand.is_ready("a"));
    let said = events(&stand, "Unhealthy");
    assert_eq!(
        said,
        ["Readiness probe errored and resulted in unknown state: couldn't find port: web"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_service_of_grpc_is_asked_by_name_and_a_warning_is_told() {
    let stand = Stand::new().await;
    stand.node.probes.set(ProbeAnswer::Warning("well".into()));
    let probe = Probe {
        http_get: None,
        grpc: Some(GRPCAction {
            port: 9000,
            service: Some("orders".into()),
        }),
        ..http()
    };
    stand
        .upsert(&with(|one| one.readiness_probe = Some(probe)))
        .await;
    stand.seconds(2).await;
    assert!(stand.is_ready("a"));
    assert_eq!(stand.node.probes.asked()[0], "grpc 10.1.0.7:9000 orders");
    let said = events(&stand, "ProbeWarning");
    assert_eq!(said, ["Readiness probe warning: well"]);
}

#[tokio::test(start_paused = true)]
async fn a_gate_holds_the_pod_back_until_someone_opens_it() {
    let stand = Stand::new().await;
    let mut pod = pod("a");
    pod.spec.as_mut().unwrap().readiness_gates = Some(vec![PodReadinessGate {
        condition_type: "example.org/lb".into(),
    }]);
    stand.upsert(&pod).await;
    stand.seconds(2).await;
    let closed = Some("ReadinessGatesNotReady".to_owned());
    assert_eq!(condition(&stand, "Ready"), ("False".into(), closed));
    assert_eq!(condition(&stand, "ContainersReady"), ("True".into(), None));
    let mut written = stand.stored(&pod).as_ref().clone();
    let status = written.status.as_mut().unwrap();
    let gate = k8s_openapi::api::core::v1::PodCondition {
        type_: "example.org/lb".into(),
        status: "True".into(),
        ..Default::default()
    };
    status.conditions.as_mut().unwrap().push(gate);
    let event = swiftlet_model::control_plane::ControlPlaneEvent::PodUpsert(written.into());
    stand.send(event).await;
    stand.seconds(1).await;
    assert!(stand.is_ready("a"));
    assert_eq!(condition(&stand, "example.org/lb").0, "True");
}

#[tokio::test(start_paused = true)]
async fn a_new_container_is_asked_early_whether_it_is_ready_but_not_whether_it_lives() {
    let stand = Stand::new().await;
    stand.node.probes.set(failure());
    let slow = Probe {
        period_seconds: Some(10),
        ..http()
    };
    let tcp = Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(8080),
            ..TCPSocketAction::default()
        }),
        http_get: None,
        ..slow.clone()
    };
    let pod = with(|one| {
        one.readiness_probe = Some(slow);
        one.liveness_probe = Some(tcp);
    });
    stand.upsert(&pod).await;
    stand.seconds(2).await;
    let count = |what: &str| {
        let asked = stand.node.probes.asked();
        asked.iter().filter(|one| one.starts_with(what)).count()
    };
    // At once, and after 0.1, 0.3, 0.7 and 1.5 seconds.
    assert_eq!((count("http"), count("tcp")), (5, 0));
    assert!(
        events(&stand, "Unhealthy").is_empty(),
        "early failures say nothing"
    );
    stand.node.probes.set(ProbeAnswer::Success(String::new()));
    stand.turn(Duration::from_millis(1500)).await;
    assert!(stand.is_ready("a"), "long before its period is over");
    let before = count("http");
    stand.node.probes.set(failure());
    stand.seconds(26).await;
    assert_eq!((count("http"), count("tcp")), (before + 2, 2));
    assert_eq!(restarts(&stand), 0);
    stand.seconds(3).await;
    assert_eq!(restarts(&stand), 1, "three failures, a period apart");
}
