//! The kernel's word that memory gets scarce.
//!
//! On v1 an eventfd fires when the root memory cgroup's usage crosses a number (the kernel's
//! `Documentation/admin-guide/cgroup-v1/memory.rst`, section 9). On v2 a PSI trigger fires while
//! tasks wait for memory (`Documentation/accounting/psi.rst`). Both are hints: who hears one looks.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use swiftlet_sys::cgroup::{Hierarchies, Mode};
use swiftlet_sys::ready;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

use crate::node;

/// Tasks that wait this long, in microseconds, within [`PSI_WINDOW_US`] make a hint.
const PSI_STALL_US: u64 = 300_000;
/// The window in microseconds: without CAP_SYS_RESOURCE the kernel takes multiples of two seconds
/// alone.
const PSI_WINDOW_US: u64 = 2_000_000;
/// Least time between two hints: who evicts needs a moment.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the number is set anew, since the files that count as free change (kubelet's
/// `monitoringInterval`).
const RENEW: Duration = Duration::from_secs(10);

/// `None`: this kernel does not tell. The task ends when nobody listens.
pub(crate) fn start(hierarchies: &Hierarchies, available: u64) -> Option<watch::Receiver<u64>> {
    let (sender, receiver) = watch::channel(0);
    match hierarchies.mode {
        Mode::V1 => {
            let memory = hierarchies.folders.iter().find(|folder| {
                let name = folder.file_name().unwrap_or_default().to_string_lossy();
                name.split(',').any(|part| part == "memory")
            })?;
            let first = Crossing::watch(memory, available).ok()?;
            tokio::spawn(follow_crossings(memory.clone(), available, first, sender));
        }
        Mode::V2 => {
            let trigger = [
                hierarchies.folders.first()?.join("memory.pressure"),
                PathBuf::from("/proc/pressure/memory"),
            ];
            let file = trigger.iter().find_map(|path| stall_trigger(path).ok())?;
            tokio::spawn(follow_stalls(file, sender));
        }
    }
    Some(receiver)
}

/// One number that usage may cross.
struct Crossing {
    event: AsyncFd<OwnedFd>,
    /// Open as long as the kernel shall watch it.
    _usage: File,
}

impl Crossing {
    /// Usage when only `available` is left: as much more as is left beyond that now.
    fn watch(memory: &Path, available: u64) -> io::Result<Self> {
        let usage_path = memory.join("memory.usage_in_bytes");
        let text = std::fs::read_to_string(&usage_path)?;
        let usage: u64 = text.trim().parse().map_err(io::Error::other)?;
        let left = node::memory().map_err(io::Error::other)?.available;
        let threshold = usage.saturating_add(left).saturating_sub(available);
        Self::at(memory, threshold)
    }

    fn at(memory: &Path, threshold: u64) -> io::Result<Self> {
        let usage = File::open(memory.join("memory.usage_in_bytes"))?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags)?;
        let line = format!(
            "{} {} {threshold}",
            event.as_fd().as_raw_fd(),
            usage.as_raw_fd()
        );
        let mut control = OpenOptions::new()
            .write(true)
            .open(memory.join("cgroup.event_control"))?;
        control.write_all(line.as_bytes())?;
        Ok(Self {
            event: ready::watch(event.into(), Interest::READABLE)?,
            _usage: usage,
        })
    }

    /// Waits until usage crosses the number, upwards or downwards.
    async fn crossed(&self) -> io::Result<()> {
        let mut ready = self.event.readable().await?;
        // The count only says how often; it is taken so that the next crossing shows.
        let mut count = [0; size_of::<u64>()];
        nix::unistd::read(self.event.get_ref(), &mut count).ok();
        ready.clear_ready();
        Ok(())
    }
}

async fn follow_crossings(
    memory: PathBuf,
    available: u64,
    mut crossing: Crossing,
    sender: watch::Sender<u64>,
) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            crossed = crossing.crossed() => {
                if crossed.is_err() {
                    return;
                }
                sender.send_modify(|count| *count += 1);
                tokio::time::sleep(PAUSE).await;
            }
            () = tokio::time::sleep(RENEW) => match Crossing::watch(&memory, available) {
                Ok(next) => crossing = next,
                Err(error) => tracing::debug!(%error, "the old number stays"),
            }
        }
    }
}

/// A file that becomes urgent while tasks wait for memory.
fn stall_trigger(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    // The kernel wants the line's end, as a string of C.
    let line = format!("some {PSI_STALL_US} {PSI_WINDOW_US}\0");
    file.write_all(line.as_bytes())?;
    ready::watch(file.into(), Interest::PRIORITY)
}

async fn follow_stalls(file: AsyncFd<OwnedFd>, sender: watch::Sender<u64>) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            ready = file.ready(Interest::PRIORITY) => {
                let Ok(mut ready) = ready else { return };
                ready.clear_ready();
                sender.send_modify(|count| *count += 1);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory hierarchy of v1, if this machine has it and lets us make a cgroup in it.
    fn own_cgroup(name: &str) -> Option<PathBuf> {
        let folder = Path::new("/sys/fs/cgroup/memory").join(name);
        match std::fs::create_dir(&folder) {
            Ok(()) => Some(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Some(folder),
            Err(_) => None,
        }
    }

    #[tokio::test]
    async fn the_kernel_tells_when_usage_crosses_the_number() {
        let Some(folder) = own_cgroup("swiftlet-pressure-test") else {
            println!("no v1 memory hierarchy to write to: nothing to try");
            return;
        };
        let crossing = Crossing::at(&folder, 8 << 20).unwrap();
        // A child of ours takes 32 MiB inside.
        let script = format!(
            "echo $$ > {}/cgroup.procs; x=$(head -c 33554432 /dev/zero | tr '\\0' a); echo ${{#x}}",
            folder.display()
        );
        let mut child = tokio::process::Command::new("sh")
            .args(["-c", &script])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let crossed = tokio::time::timeout(Duration::from_secs(30), crossing.crossed()).await;
        child.wait().await.unwrap();
        drop(crossing);
        std::fs::remove_dir(&folder).ok();
        assert!(matches!(crossed, Ok(Ok(()))), "the crossing was not told");
    }

    #[tokio::test]
    async fn the_kernel_takes_our_trigger_of_pressure() {
        let path = Path::new("/proc/pressure/memory");
        if !path.exists() {
            println!("this kernel counts no pressure: nothing to try");
            return;
        }
        assert!(stall_trigger(path).is_ok());
    }

    #[tokio::test]
    async fn a_watch_begins_without_a_hint() {
        let Ok(hierarchies) = swiftlet_sys::cgroup::hierarchies(Path::new("/sys/fs/cgroup")) else {
            println!("no cgroups here: nothing to try");
            return;
        };
        let Some(receiver) = start(&hierarchies, 1 << 20) else {
            println!("this kernel does not tell: nothing to try");
            return;
        };
        assert_eq!(*receiver.borrow(), 0);
    }
}
