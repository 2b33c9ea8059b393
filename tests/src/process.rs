//! A program that runs in the background, and can be found again by a later command.
//!
//! Its pid and start time stand in a file: a pid that was given to another process meanwhile is
//! never signalled.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

/// How long a program may take to end after SIGTERM, before SIGKILL.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two looks at a process that is no child of ours.
const POLL: Duration = Duration::from_millis(5);

/// A background program.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: Pid,
    started: u64,
    pid_file: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts a program; its output goes to `<dir>/<name>.log`, its pid to `<dir>/<name>.pid`.
    pub fn start(dir: &Path, name: &str, command: &mut Command) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        // A group of its own, so that a Ctrl-C meant for the caller does not end it.
        command.process_group(0);
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id())?);
        let started = start_time(pid).with_context(|| format!("{name} ended at once"))?;
        let pid_file = dir.join(format!("{name}.pid"));
        std::fs::write(&pid_file, format!("{pid} {started}\n"))?;
        Ok(Self {
            name: name.to_owned(),
            pid,
            started,
            pid_file,
            log,
        })
    }

    /// Finds the program that an earlier command started; `None` if it does not run.
    pub fn find(dir: &Path, name: &str) -> Option<Self> {
        let pid_file = dir.join(format!("{name}.pid"));
        let text = std::fs::read_to_string(&pid_file).ok()?;
        let (pid, started) = text.trim().split_once(' ')?;
        let process = Self {
            name: name.to_owned(),
            pid: Pid::from_raw(pid.parse().ok()?),
            started: started.parse().ok()?,
            pid_file,
            log: dir.join(format!("{name}.log")),
        };
        process.is_running().then_some(process)
    }

    /// The process id.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Where its output goes.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it runs still.
    pub fn is_running(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Its resident memory in KiB.
    pub fn rss_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// SIGTERM, and SIGKILL if that does not end it in time.
    pub fn stop(self) -> Result<()> {
        self.signal(Signal::SIGTERM);
        if !self.wait(STOP_LIMIT) {
            self.signal(Signal::SIGKILL);
            if !self.wait(STOP_LIMIT) {
                bail!("{} (pid {}) does not end", self.name, self.pid);
            }
        }
        std::fs::remove_file(&self.pid_file).ok();
        Ok(())
    }

    /// SIGKILL, as a crash.
    pub fn kill(self) -> Result<()> {
        self.signal(Signal::SIGKILL);
        if !self.wait(STOP_LIMIT) {
            bail!("{} (pid {}) does not end", self.name, self.pid);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if self.is_running() {
            kill(self.pid, signal).ok();
        }
    }

    fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + patient(limit);
        loop {
            // A child of ours is gone when it can be reaped: a leader may be a zombie while other
            // threads still hold its files. Of others only /proc tells.
            let flags = nix::sys::wait::WaitPidFlag::WNOHANG;
            let gone = match nix::sys::wait::waitpid(self.pid, Some(flags)) {
                Ok(WaitStatus::StillAlive) => false,
                Ok(_) => true,
                Err(_) => !self.is_running(),
            };
            if gone {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Start time of a process in clock ticks after boot; `None` if there is none or it is a zombie.
/// Source: proc(5), fields 3 and 22 of `stat`.
fn start_time(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything, so count from its end.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// The limit, as many times as `SWIFTLET_PATIENCE` says: an emulated machine is slow.
pub fn patient(limit: Duration) -> Duration {
    let factor = std::env::var("SWIFTLET_PATIENCE").ok();
    limit * factor.and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Waits until `ready` answers something, or says what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> Result<T> {
    let limit = patient(limit);
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = ready() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("{what}: not within {limit:?}");
        }
        std::thread::sleep(POLL);
    }
}
