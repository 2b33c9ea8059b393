//! The kernel's log, read for what the OOM killer says when the whole machine has no memory left.
//!
//! The log and no tracepoint: `mark_victim` does not tell whether a cgroup's limit was hit or the
//! machine's, and pods' processes are victims of either. Kubernetes reads the log too (cadvisor's
//! `utils/oomparser`). The format of `/dev/kmsg`: the kernel's
//! `Documentation/ABI/testing/dev-kmsg`; the words: `__oom_kill_process` of its `mm/oom_kill.c`,
//! since 5.1.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::unistd::read;
use swiftlet_model::node_stats::SystemOom;
use swiftlet_sys::ready;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// The log, a record for each read.
const LOG: &str = "/dev/kmsg";
/// Longest record in bytes (`PRINTK_MESSAGE_MAX` of the kernel's `kernel/printk/internal.h`, with
/// each byte escaped); a longer one is skipped.
const RECORD_BYTES_MAX: usize = 8192;
/// Victims that wait to be told of. When there are more, the log waits in the kernel.
const WAITING_MAX: usize = 16;
/// Bits of a record's priority below its facility (`syslog(2)`). What programs write into the log
/// never has the kernel's own facility, 0.
const FACILITY_SHIFT: u32 = 3;

/// Victims from now on; `None` if the log cannot be read. The task ends when nobody listens.
pub(crate) fn system_ooms() -> Option<mpsc::Receiver<SystemOom>> {
    let opened = open().and_then(|log| ready::watch(log.into(), Interest::READABLE));
    let log = match opened {
        Ok(log) => log,
        Err(error) => {
            tracing::warn!(%error, LOG, "no Events about a machine without memory");
            return None;
        }
    };
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        let closed = sender.clone();
        tokio::select! {
            error = follow(&log, &sender) => {
                tracing::warn!(%error, LOG, "no more Events about a machine without memory");
            }
            () = closed.closed() => {}
        }
    });
    Some(receiver)
}

/// The log behind its last record: what was said before, an earlier agent has heard.
fn open() -> io::Result<File> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(O_NONBLOCK).open(LOG)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}

/// Tells of victims until the log cannot be read any more, and answers why.
async fn follow(log: &AsyncFd<OwnedFd>, sender: &mpsc::Sender<SystemOom>) -> io::Error {
    let mut record = vec![0; RECORD_BYTES_MAX];
    loop {
        let length = match log
            .async_io(Interest::READABLE, |log| Ok(read(log, &mut record)?))
            .await
        {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(length) => length,
            // The kernel wrote over what was not read yet, or the record is too long. The next read
            // goes on behind it.
            Err(error) if is_gap(&error) => continue,
            Err(error) => return error,
        };
        if let Some(victim) = system_oom(&String::from_utf8_lossy(&record[..length]))
            && sender.send(victim).await.is_err()
        {
            return io::ErrorKind::BrokenPipe.into();
        }
    }
}

fn is_gap(error: &io::Error) -> bool {
    let gaps = [Errno::EPIPE, Errno::EINVAL];
    gaps.iter()
        .any(|gap| error.raw_os_error() == Some(*gap as i32))
}

/// The victim, if a record tells of one for want of the machine's memory. Pure. A cgroup's victim
/// is told of with other words: "Memory cgroup out of memory: Killed process …".
fn system_oom(record: &str) -> Option<SystemOom> {
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    if priority >> FACILITY_SHIFT != 0 {
        return None;
    }
    // What follows may be "(oom_kill_allocating_task)".
    let why = text.lines().next()?.strip_prefix("Out of memory")?;
    let (_, victim) = why.split_once(": Killed process ")?;
    let (pid, named) = victim.split_once(" (")?;
    // A name may have any characters in it; nothing after it has parentheses.
    let (process, _) = named.rsplit_once(')')?;
    Some(SystemOom {
        process: process.to_owned(),
        pid: pid.parse().ok()?,
    })
}

#[cfg(test)]
#[path = "kernel_log/tests.rs"]
mod tests;
