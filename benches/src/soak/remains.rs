//! What is left when all pods have gone.

use std::path::Path;
use std::time::{Duration, Instant};

use swiftlet_tests::leftovers::{Machine, addresses_held, runtime_objects};
use swiftlet_tests::stack::StackOptions;

/// Pause between two looks.
const POLL: Duration = Duration::from_millis(200);

/// What is left.
#[derive(Debug, Default)]
pub(super) struct Remains {
    /// A line each; none if all is as it was before.
    pub(super) leaks: Vec<String>,
    /// Shims with no process below them. containerd leaves one when it is killed after it started a
    /// shim and before it noted the task; it does not know them again, and CRI has no word for
    /// them: nothing of the pod is left but this program of the runtime's.
    pub(super) empty_shims: usize,
}

/// What is left after this time, or as soon as nothing is.
pub(super) fn when_settled(
    limit: Duration,
    options: &StackOptions,
    socket: &Path,
    before: &Machine,
) -> Remains {
    let deadline = Instant::now() + limit;
    loop {
        let left = look(options, socket, before);
        if left.leaks.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(POLL);
    }
}

fn look(options: &StackOptions, socket: &Path, before: &Machine) -> Remains {
    let mut machine = Machine::look(&options.dir, &options.cgroup_root);
    let all = machine.processes.len();
    machine.processes.retain(|line| !is_empty_shim(line));
    let empty_shims = all - machine.processes.len();
    // Agent and runtime have other process ids than before, which is what the soak is about.
    machine
        .processes
        .retain(|line| line.contains("containerd-shim"));
    let mut leaks = machine.since(before);
    let addresses = addresses_held(&options.dir);
    leaks.extend(addresses.iter().map(|one| format!("address {one}")));
    match runtime_objects(socket) {
        Ok(objects) => leaks.extend(objects),
        Err(error) => leaks.push(format!("the runtime does not answer: {error:#}")),
    }
    for folder in ["node/pods", "logs/pods"] {
        let entries = std::fs::read_dir(options.dir.join(folder));
        let entries = entries.into_iter().flatten().flatten();
        leaks.extend(entries.map(|entry| format!("folder {}", entry.path().display())));
    }
    Remains { leaks, empty_shims }
}

/// A line of [`Machine::processes`] begins with the process id.
fn is_empty_shim(line: &str) -> bool {
    let Some((pid, command)) = line.split_once(' ') else {
        return false;
    };
    if !command.contains("containerd-shim") {
        return false;
    }
    // Any of its threads may have started one.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads: Vec<_> = threads.into_iter().flatten().flatten().collect();
    let is_childless = |thread: &std::fs::DirEntry| {
        let children = std::fs::read_to_string(thread.path().join("children"));
        children.is_ok_and(|text| text.trim().is_empty())
    };
    !threads.is_empty() && threads.iter().all(is_childless)
}
