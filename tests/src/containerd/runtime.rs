//! Which containerd and which OCI runtime the stack runs, and all in which their versions differ.
//!
//! The installed ones, unless the environment says otherwise: `SWIFTLET_CONTAINERD` is the path of
//! a containerd or of the folder that holds it (`ctr` and the shim lie beside it, or are those of
//! the machine), `SWIFTLET_RUNC` that of an OCI runtime with runc's command line (runc, crun).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::ContainerdOptions;
use crate::programs;

/// Names a containerd, or the folder of one.
const CONTAINERD_VARIABLE: &str = "SWIFTLET_CONTAINERD";

/// Names an OCI runtime.
const RUNC_VARIABLE: &str = "SWIFTLET_RUNC";

/// From this major version on, the configuration is of version 3 and CRI's is in two sections.
/// Source: containerd's docs/cri/config.md.
const CONFIG_3_SINCE: u32 = 2;

/// The programs of one container runtime.
#[derive(Clone, Debug)]
pub struct Runtime {
    containerd: PathBuf,
    ctr: PathBuf,
    oci: Option<PathBuf>,
    version: (u32, u32),
}

impl Runtime {
    /// The one that the environment names.
    pub fn of_environment() -> Result<Self> {
        let containerd = containerd_program()?;
        let ctr = ctr_program(&containerd)?;
        let oci = std::env::var_os(RUNC_VARIABLE).map(PathBuf::from);
        if let Some(path) = oci.as_ref().filter(|path| !path.is_file()) {
            bail!("{RUNC_VARIABLE}: there is no {}", path.display());
        }
        let version = version_of(&containerd)?;
        Ok(Self {
            containerd,
            ctr,
            oci,
            version,
        })
    }

    /// Major and minor version of containerd.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The daemon's command; it finds its shims beside itself first.
    pub(super) fn daemon(&self) -> Command {
        let mut command = Command::new(&self.containerd);
        let folder = self.containerd.parent().map(Path::to_owned);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = folder.into_iter().chain(std::env::split_paths(&path));
        // A folder whose name holds a colon cannot stand there.
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        command
    }

    /// `ctr version`, which succeeds when the daemon serves its socket.
    pub(super) fn ask(&self, socket: &Path) -> Command {
        let mut command = Command::new(&self.ctr);
        command.arg("--address").arg(socket).arg("version");
        command
    }

    /// Arguments of `ctr` that load an image's archive, by `ctr` itself: from 2.0 on it leaves that
    /// to the transfer service, whose configuration would then decide on how it is unpacked.
    pub fn import_arguments(&self) -> Vec<OsString> {
        let words: &[&str] = if self.version.0 < 2 {
            &["images", "import"]
        } else {
            &["images", "import", "--local"]
        };
        words.iter().map(OsString::from).collect()
    }

    /// The daemon's configuration, for the folder that holds its root, state and socket.
    pub(super) fn configuration(&self, dir: &Path, options: &ContainerdOptions) -> String {
        let is_3 = self.version.0 >= CONFIG_3_SINCE;
        let cri = if is_3 {
            self.cri_3(options)
        } else {
            self.cri_2(options)
        };
        let dir = dir.display();
        format!(
            r#"version = {version}
root = "{dir}/root"
state = "{dir}/state"
oom_score = 0

[grpc]
  address = "{dir}/containerd.sock"

[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"

[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"

# Its socket would be the machine's.
[plugins."io.containerd.nri.v1.nri"]
  disable = true

{cri}"#,
            version = if is_3 { 3 } else { 2 },
        )
    }

    /// One section, for 1.x.
    fn cri_2(&self, options: &ContainerdOptions) -> String {
        let section = r#"plugins."io.containerd.grpc.v1.cri""#;
        format!(
            r#"[{section}]
  sandbox_image = "{pause}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
{rights}
  [{section}.cni]
    bin_dir = "{bin}"
    conf_dir = "{conf}"

  [{section}.containerd]
    snapshotter = "overlayfs"
{runtimes}"#,
            pause = options.pause_image,
            rights = rights(),
            bin = options.cni_bin_dir.display(),
            conf = options.cni_conf_dir.display(),
            runtimes = self.runtimes(section),
        )
    }

    /// Images, runtime and the server apart, for 2.x. The loopback interface is then set up by the
    /// daemon itself, without a program.
    fn cri_3(&self, options: &ContainerdOptions) -> String {
        let section = r#"plugins."io.containerd.cri.v1.runtime""#;
        format!(
            r#"[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"

[{section}]
{rights}
  [{section}.cni]
    {bin_dirs}
    conf_dir = "{conf}"
    use_internal_loopback = true

  [{section}.containerd]
{runtimes}"#,
            pause = options.pause_image,
            rights = rights(),
            bin_dirs = self.bin_dirs(&options.cni_bin_dir),
            conf = options.cni_conf_dir.display(),
            runtimes = self.runtimes(section),
        )
    }

    /// 2.1 takes several folders and calls the single one outdated.
    fn bin_dirs(&self, folder: &Path) -> String {
        if self.version >= (2, 1) {
            format!(r#"bin_dirs = ["{}"]"#, folder.display())
        } else {
            format!(r#"bin_dir = "{}""#, folder.display())
        }
    }

    fn runtimes(&self, section: &str) -> String {
        let binary = self.oci.as_ref().map_or_else(String::new, |path| {
            format!("\n      BinaryName = \"{}\"", path.display())
        });
        format!(
            r#"    default_runtime_name = "runc"
  [{section}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [{section}.containerd.runtimes.runc.options]
      SystemdCgroup = false{binary}
"#
        )
    }
}

/// What depends on the rights that the machine leaves to root. Without `CAP_SYS_RESOURCE` runc
/// fails to lower a score; where it is there, restricting changes nothing for pods that ask for no
/// less than containerd's own score.
fn rights() -> String {
    let no_apparmor = !Path::new("/sys/kernel/security/apparmor/profiles").exists();
    let restrict = !may_lower_oom_score();
    format!(
        "  restrict_oom_score_adj = {restrict}
  disable_apparmor = {no_apparmor}
  netns_mounts_under_state_dir = true
"
    )
}

/// `CAP_SYS_RESOURCE` is bit 24 of the effective set.
fn may_lower_oom_score() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    mask & (1 << 24) != 0
}

fn containerd_program() -> Result<PathBuf> {
    let Some(given) = std::env::var_os(CONTAINERD_VARIABLE) else {
        return programs::on_path("containerd")
            .context("containerd is not installed: apt-get install containerd");
    };
    let path = Path::new(&given);
    let program = if path.is_dir() {
        path.join("containerd")
    } else {
        path.to_owned()
    };
    if !program.is_file() {
        bail!("{CONTAINERD_VARIABLE}: there is no {}", program.display());
    }
    // The daemon is started in a folder of its own choice.
    Ok(program.canonicalize()?)
}

fn ctr_program(containerd: &Path) -> Result<PathBuf> {
    Some(containerd.with_file_name("ctr"))
        .filter(|path| path.is_file())
        .or_else(|| programs::on_path("ctr"))
        .context("ctr is not installed: apt-get install containerd")
}

fn version_of(containerd: &Path) -> Result<(u32, u32)> {
    let output = Command::new(containerd).arg("--version").output();
    let output = output.with_context(|| format!("run {}", containerd.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).with_context(|| {
        let words = String::from_utf8_lossy(&output.stderr);
        format!("{} tells no version: {text}{words}", containerd.display())
    })
}

/// The third word of `containerd github.com/… 1.6.20~ds1 …`, perhaps with a `v` before it.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text
        .split_whitespace()
        .nth(2)?
        .trim_start_matches('v')
        .split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Runs `ctr` in Kubernetes' namespace.
pub fn ctr(socket: &Path, arguments: &[impl AsRef<OsStr> + std::fmt::Debug]) -> Result<String> {
    let mut command = Command::new(ctr_program(&containerd_program()?)?);
    command.arg("--address").arg(socket);
    command.args(["--namespace", "k8s.io"]).args(arguments);
    let output = command.output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("ctr {arguments:?}: {}", words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(version: (u32, u32), oci: Option<&str>) -> String {
        let runtime = Runtime {
            containerd: "/opt/containerd".into(),
            ctr: "/opt/ctr".into(),
            oci: oci.map(PathBuf::from),
            version,
        };
        let options = ContainerdOptions {
            pause_image: "local/pause:1".to_owned(),
            cni_conf_dir: "/s/conf".into(),
            cni_bin_dir: "/s/bin".into(),
        };
        runtime.configuration(Path::new("/s/containerd"), &options)
    }

    #[test]
    fn versions_of_debian_and_of_the_project_are_read() {
        let texts = [
            "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
            "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4",
        ];
        assert_eq!(texts.map(parse_version), [Some((1, 6)), Some((2, 1))]);
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn each_version_gets_the_configuration_that_it_reads() {
        let old = runtime((1, 7), None);
        assert!(old.starts_with("version = 2\n"), "{old}");
        assert!(old.contains("sandbox_image = \"local/pause:1\""), "{old}");
        assert!(
            !old.contains("cri.v1") && !old.contains("BinaryName"),
            "{old}"
        );
        let new = runtime((2, 1), Some("/opt/crun"));
        assert!(new.starts_with("version = 3\n"), "{new}");
        assert!(new.contains("sandbox = \"local/pause:1\""), "{new}");
        assert!(new.contains("bin_dirs = [\"/s/bin\"]"), "{new}");
        assert!(new.contains("BinaryName = \"/opt/crun\""), "{new}");
        assert!(runtime((2, 0), None).contains("bin_dir = \"/s/bin\""));
    }
}
