//! Against records as the kernel writes them, and those of the kernel that runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};

use super::*;

const SYSTEM: &str = "3,2117,17413282,-;Out of memory: Killed process 412 (my app (1)) \
    total-vm:7864kB, anon-rss:5120kB, file-rss:4kB, shmem-rss:0kB, UID:0 pgtables:56kB \
    oom_score_adj:1000\n SUBSYSTEM=x\n";
const OF_A_CGROUP: &str = "3,2118,17413283,-;Memory cgroup out of memory: Killed process 413 (a) \
    total-vm:1kB\n";
/// Longest wait for the kernel; an emulated machine is slow.
const PATIENCE: Duration = Duration::from_mins(2);

fn victim(process: &str, pid: u32) -> SystemOom {
    SystemOom {
        process: process.to_owned(),
        pid,
    }
}

#[test]
fn only_the_kernels_own_word_on_the_machines_memory_counts() {
    assert_eq!(system_oom(SYSTEM), Some(victim("my app (1)", 412)));
    let allocating = "3,1,2,-,caller=T7;Out of memory (oom_kill_allocating_task): Killed process 7 \
        (x) total-vm:1kB";
    assert_eq!(system_oom(allocating), Some(victim("x", 7)));
    // The last was written by a program.
    for other in [
        OF_A_CGROUP,
        "0,1,2,-;Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
        "4,1,2,-;Out of memory and no killable processes...",
        "6,1,2,-;eth0: link up",
        "",
        &SYSTEM.replacen("3,", "11,", 1),
    ] {
        assert_eq!(system_oom(other), None, "{other}");
    }
}

#[tokio::test]
async fn each_victim_is_told_of_once_and_the_end_of_the_log_is_an_end() {
    // Keeps records apart, as the log does.
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags);
    let (write, read) = pair.unwrap();
    let log = ready::watch(read, Interest::READABLE).unwrap();
    for record in [SYSTEM, OF_A_CGROUP, &SYSTEM.replace("412", "414")] {
        nix::unistd::write(&write, record.as_bytes()).unwrap();
    }
    drop(write);
    let (sender, mut receiver) = mpsc::channel(WAITING_MAX);
    let error = follow(&log, &sender).await;
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    drop(sender);
    let mut told = Vec::new();
    while let Some(victim) = receiver.recv().await {
        told.push(victim.pid);
    }
    assert_eq!(told, [412, 414]);
}

/// A cgroup of no pod, with little memory.
struct Narrow(PathBuf);

impl Narrow {
    fn new() -> Self {
        let (v1, v2) = (
            Path::new("/sys/fs/cgroup/memory"),
            Path::new("/sys/fs/cgroup"),
        );
        let (above, limit) = if v1.exists() {
            (v1, "memory.limit_in_bytes")
        } else {
            std::fs::write(v2.join("cgroup.subtree_control"), "+memory").unwrap();
            (v2, "memory.max")
        };
        let folder = above.join(format!("swiftlet-kernel-log-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let folder = Self(folder);
        std::fs::write(folder.0.join(limit), "16777216").unwrap();
        folder
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).ok();
    }
}

/// The words of the kernel that runs: a victim of a cgroup is none of the system's, and with the
/// one word changed that the kernel changes, it is.
#[tokio::test]
async fn a_cgroup_without_memory_is_not_the_machine_without_memory() {
    let narrow = Narrow::new();
    let log = ready::watch(open().unwrap().into(), Interest::READABLE).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec tail /dev/zero",
        narrow.0.display()
    );
    let mut child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
    let pid = child.id();
    assert!(!child.wait().unwrap().success(), "it was killed");
    let told = tokio::time::timeout(PATIENCE, word_on(&log, pid)).await;
    let text = told.expect("the kernel says so");
    assert_eq!(system_oom(&text), None, "{text}");
    let system = text.replace("Memory cgroup out of memory", "Out of memory");
    assert_eq!(system_oom(&system), Some(victim("tail", pid)), "{text}");
}

/// The kernel's word that it has killed this process.
async fn word_on(log: &AsyncFd<OwnedFd>, pid: u32) -> String {
    let needle = format!("Killed process {pid} ");
    let mut record = vec![0; RECORD_BYTES_MAX];
    loop {
        let read = log.async_io(Interest::READABLE, |log| Ok(read(log, &mut record)?));
        // Others write into the log as well, perhaps more than it holds.
        let length = read.await.unwrap_or_default();
        let text = String::from_utf8_lossy(&record[..length]).into_owned();
        if text.contains(&needle) {
            return text;
        }
    }
}
