//! What is left when all pods have gone.

use std::collections::BTreeSet;
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
    /// Shims of nothing: see [`is_empty`].
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
    let objects = runtime_objects(socket);
    let all = machine.processes.len();
    if let Ok(objects) = &objects {
        let is_empty = |line: &str| Shim::look(line).is_some_and(|shim| is_empty(&shim, objects));
        machine.processes.retain(|line| !is_empty(line));
    }
    let empty_shims = all - machine.processes.len();
    // Agent and runtime have other process ids than before, which is what the soak is about.
    machine
        .processes
        .retain(|line| line.contains("containerd-shim"));
    let mut leaks = machine.since(before);
    let addresses = addresses_held(&options.dir);
    leaks.extend(addresses.iter().map(|one| format!("address {one}")));
    match objects {
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

/// Where a shim notes the id of its container's first process (`InitPidFile` of containerd's
/// `pkg/process/init.go`).
const FIRST_PROCESS: &str = "init.pid";

/// A shim that serves containerd's runtime v2.
#[derive(Debug, PartialEq, Eq)]
struct Shim {
    /// The container that it was started for.
    id: String,
    /// Whether the container ever had a first process.
    has_run: bool,
    /// Whether any process is below it.
    has_child: bool,
}

impl Shim {
    /// A line of [`Machine::processes`] is the process id and the command; `None` if that is no
    /// shim, or has ended. A shim works in its container's folder.
    fn look(line: &str) -> Option<Self> {
        let (pid, command) = line.split_once(' ')?;
        let mut words = command.split(' ');
        words.find(|word| word.contains("containerd-shim"))?;
        words.find(|word| *word == "-id")?;
        let id = words.next()?.to_owned();
        let process = Path::new("/proc").join(pid);
        std::fs::metadata(process.join("cwd")).ok()?;
        // Any of its threads may have started one.
        let threads: Vec<_> = std::fs::read_dir(process.join("task")).ok()?.collect();
        let has_child = threads.iter().flatten().any(|thread| {
            let children = std::fs::read_to_string(thread.path().join("children"));
            children.is_ok_and(|text| !text.trim().is_empty())
        });
        Some(Self {
            id,
            has_run: process.join("cwd").join(FIRST_PROCESS).exists(),
            has_child,
        })
    }
}

/// Whether nothing but the shim is left: its container never had a first process (there is no note
/// of one in the folder, or no folder), no process is below it, and the runtime lists neither a
/// container nor a task of that name. containerd 1.6 makes one when it is killed after it began to
/// start a shim and before the shim has made the task: at its next start it finds the shim by its
/// folder, keeps it, and has nothing to ask it for; who removes the container does not reach it.
/// From 1.7 on it ends them at its start (its pull request 6866, `loadShims`). It is the runtime's
/// program and the runtime's leak: a kubelet has no word for it, and the node ends no process that
/// it has not started. Pure.
fn is_empty(shim: &Shim, objects: &BTreeSet<String>) -> bool {
    let is_listed = ["container", "task"]
        .iter()
        .any(|kind| objects.contains(&format!("{kind} {}", shim.id)));
    !shim.has_run && !shim.has_child && !is_listed
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    const IN_FOLDER: &str = "echo; read line";
    const WITH_CHILD: &str = "sleep 1000 & echo; read line; kill $!";

    /// What the shim works in.
    #[derive(Clone, Copy, Debug)]
    enum Folder {
        Bare,
        Removed,
        Noted,
    }

    /// A program that looks like a shim, in a folder of its own.
    fn start(script: &str, folder: &Path) -> Child {
        let words = [
            "-c",
            script,
            "containerd-shim-runc-v2",
            "-namespace",
            "k8s.io",
            "-id",
            "c1",
        ];
        Command::new("sh")
            .args(words)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn look(child: &Child) -> Shim {
        let command = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id())).unwrap();
        Shim::look(&format!("{} {}", child.id(), command.replace('\0', " "))).unwrap()
    }

    #[test]
    fn a_shim_of_nothing_never_had_a_process_and_has_no_name_in_the_runtime() {
        let none = BTreeSet::new();
        for (script, folder_is, expected) in [
            (IN_FOLDER, Folder::Bare, true),
            (IN_FOLDER, Folder::Removed, true),
            (IN_FOLDER, Folder::Noted, false),
            (WITH_CHILD, Folder::Bare, false),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let mut child = start(script, folder.path());
            // It runs, and has its child: before that the kernel knows no command line of it.
            let mut line = [0];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            match folder_is {
                Folder::Bare => {}
                Folder::Removed => folder.close().unwrap(),
                Folder::Noted => std::fs::write(folder.path().join(FIRST_PROCESS), "7").unwrap(),
            }
            let shim = look(&child);
            assert_eq!(
                is_empty(&shim, &none),
                expected,
                "{script} {folder_is:?}: {shim:?}"
            );
            for kind in ["container", "task"] {
                let listed = BTreeSet::from([format!("{kind} c1")]);
                assert!(!is_empty(&shim, &listed), "{kind}");
            }
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn other_programs_are_no_shims() {
        let own = std::process::id();
        assert_eq!(
            Shim::look(&format!("{own} containerd --config x -id c1")),
            None
        );
        assert_eq!(
            Shim::look(&format!("{own} containerd-shim-runc-v2 -v")),
            None
        );
        assert_eq!(
            Shim::look("0 containerd-shim-runc-v2 -id c1"),
            None,
            "it has ended"
        );
    }
}
