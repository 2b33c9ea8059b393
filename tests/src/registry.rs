//! An image registry on the loopback device: Debian's package docker-registry. containerd speaks
//! plain HTTP to registries there.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::containerd::ctr;
use crate::process::{Process, wait_for};
use crate::programs;

/// How long it may take to listen.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// The one who may use a registry that is not for everyone.
pub const USER: &str = "puller";
/// That user's password.
pub const PASSWORD: &str = "letmein";
/// Both as htpasswd writes them (bcrypt of the password, cost 5).
const HTPASSWD: &str = "puller:$2b$05$abcdefghijklmnopqrstuuKwWV7ESJpzKzf9FQg57dBvMuv92X9HS\n";

/// A registry. Dropped, it is stopped; its folder is the caller's.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    is_open: bool,
    process: Option<Process>,
}

impl Registry {
    /// A registry for everyone.
    pub fn open(dir: &Path) -> Result<Self> {
        Self::start(dir, true)
    }

    /// A registry that asks for [`USER`] and [`PASSWORD`].
    pub fn guarded(dir: &Path) -> Result<Self> {
        Self::start(dir, false)
    }

    fn start(dir: &Path, is_open: bool) -> Result<Self> {
        let program = programs::on_path("docker-registry")
            .context("docker-registry is not installed: apt-get install docker-registry")?;
        std::fs::create_dir_all(dir)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let users = dir.join("htpasswd");
        std::fs::write(&users, HTPASSWD)?;
        let mut text = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: {address}\n",
            dir.join("data").display()
        );
        if !is_open {
            text += "auth:\n  htpasswd:\n    realm: test\n    path: ";
            text += &users.display().to_string();
            text.push('\n');
        }
        let configuration = dir.join("config.yml");
        std::fs::write(&configuration, text)?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&configuration);
        let process = Process::start(dir, "registry", &mut command)?;
        wait_for("the registry listens", READY_LIMIT, || {
            TcpStream::connect(address).is_ok().then_some(())
        })?;
        Ok(Self {
            address,
            is_open,
            process: Some(process),
        })
    }

    /// The registry in the name of an image, with its port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// The name of an image in it.
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Stores an image that a containerd has under this name; answers its name here.
    pub fn push(&self, socket: &Path, image: &str, name: &str) -> Result<String> {
        let target = self.image(name);
        let user = format!("{USER}:{PASSWORD}");
        let mut words = vec!["images", "push", "--plain-http"];
        if !self.is_open {
            words.extend(["--user", &user]);
        }
        words.extend([target.as_str(), image]);
        let words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
        ctr(socket, &words)?;
        Ok(target)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if let Some(process) = self.process.take()
            && let Err(error) = process.stop()
        {
            eprintln!("registry not stopped: {error:#}");
        }
    }
}
