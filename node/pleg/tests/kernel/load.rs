//! Many containers at once: nothing is lost, or the loss is counted.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Instant;

use swiftlet_model::lifecycle::LifecycleKind;

use crate::container::TestPod;
use crate::source::Source;

const SHELLS: usize = 4;
const CONTAINERS_PER_SHELL: usize = 2_500;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_short_containers_lose_nothing_or_say_so() {
    let pod = TestPod::new();
    let mut source = Source::tracking(&pod);
    let begun = Instant::now();
    let shells: Vec<_> = (0..SHELLS).map(|shell| start_shell(&pod, shell)).collect();
    let mut told: HashMap<String, (u32, u32)> = HashMap::new();
    let ends = SHELLS * CONTAINERS_PER_SHELL;
    let mut died = 0;
    while died < ends && source.handle.stats().ring_full == 0 {
        match source.next().await.kind {
            LifecycleKind::ContainerStarted { container } => {
                told.entry(container.as_str().to_owned()).or_default().0 += 1;
            }
            LifecycleKind::ContainerDied { container, exit } => {
                assert_eq!(exit.expect("the kernel's own word").code, 0);
                told.entry(container.as_str().to_owned()).or_default().1 += 1;
                died += 1;
            }
            LifecycleKind::Changed => panic!("nothing went wrong here"),
        }
    }
    let took = begun.elapsed();
    for mut shell in shells {
        assert!(shell.wait().expect("the shell ends").success());
    }
    let stats = source.handle.stats();
    println!(
        "{died} of {ends} containers told in {took:?}; {} records",
        stats.kernel_events
    );
    assert!(died == ends || stats.ring_full > 0);
    assert!(told.values().all(|told| *told == (1, 1)) || stats.ring_full > 0);
}

/// Makes, runs and removes containers one after the other.
fn start_shell(pod: &TestPod, shell: usize) -> std::process::Child {
    let script = format!(
        "set -e; cd {}; i=0; while [ $i -lt {CONTAINERS_PER_SHELL} ]; do \
           c=c{shell}-$i; mkdir $c; \
           ( echo 0 > $c/cgroup.procs; exec unshare --mount /bin/true ); \
           rmdir $c; i=$((i+1)); done",
        pod.directory.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::null());
    command.spawn().expect("a shell can be started")
}
