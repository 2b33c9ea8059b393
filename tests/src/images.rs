//! Images made here, so that no registry is needed: archives in the format of `docker save`.
//! Source: the image specification v1.2 of Moby (`manifest.json`, one configuration, layers as
//! tars).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::containerd::{Runtime, ctr};
use crate::process::wait_for;

/// The static busybox of Debian's package busybox-static.
const BUSYBOX: &str = "/bin/busybox";

/// `swiftlet-pause`, statically linked by this crate's build script.
const PAUSE_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// The label that containerd's CRI part puts on an image when it has taken notice of it.
const CRI_LABEL: &str = "io.cri-containerd.image=managed";

/// The label by which it lists an image as pinned, from 1.7.3 on.
const PINNED_LABEL: &str = "io.cri-containerd.pinned=pinned";

/// How long it may take to do so; it hears of imports by an event.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// Size of a tar block (POSIX.1-1988, ustar).
const BLOCK: usize = 512;

/// An archive and the name of the image in it.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The file.
    pub path: PathBuf,
    /// The image's name.
    pub name: String,
    /// Whether it must survive a clean-up of unused images, as one that nobody runs yet.
    pub is_pinned: bool,
}

/// Makes the archive of an image that holds busybox under all its names.
pub fn busybox_archive(folder: &Path, name: &str) -> Result<Archive> {
    let program =
        std::fs::read(BUSYBOX).context("no /bin/busybox: apt-get install busybox-static")?;
    let list = Command::new(BUSYBOX).arg("--list").output()?;
    let mut layer = Tar::default();
    for path in ["bin/", "etc/", "tmp/", "root/", "var/"] {
        layer.folder(path);
    }
    layer.file("bin/busybox", 0o755, &program);
    for applet in String::from_utf8_lossy(&list.stdout)
        .lines()
        .filter(|name| *name != "busybox")
    {
        layer.link(&format!("bin/{applet}"), "busybox");
    }
    layer.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    );
    layer.file("etc/group", 0o644, b"root:x:0:\nnobody:x:65534:\n");
    archive(folder, name, layer, &json!({"Cmd": ["sh"]}))
}

/// Makes the archive of the sandbox image, which holds one static program.
pub fn pause_archive(folder: &Path, name: &str) -> Result<Archive> {
    let mut layer = Tar::default();
    layer.file("pause", 0o755, PAUSE_PROGRAM);
    let pause = archive(folder, name, layer, &json!({"Entrypoint": ["/pause"]}))?;
    // containerd pins only what it pulls as its sandbox image.
    Ok(Archive {
        is_pinned: true,
        ..pause
    })
}

/// Loads archives into a containerd.
pub fn import(socket: &Path, archives: &[Archive]) -> Result<()> {
    let arguments = Runtime::of_environment()?.import_arguments();
    for archive in archives {
        let mut words = arguments.clone();
        words.push(archive.path.clone().into_os_string());
        ctr(socket, &words)?;
        if archive.is_pinned {
            ctr(socket, &["images", "label", &archive.name, PINNED_LABEL])?;
        }
    }
    for Archive { name, .. } in archives {
        wait_for(&format!("CRI knows {name}"), NOTICE_LIMIT, || {
            is_noticed(socket, name)
        })?;
    }
    Ok(())
}

fn is_noticed(socket: &Path, name: &str) -> Option<()> {
    let filter = format!("name=={name}");
    let listing = ctr(socket, &["images", "list", filter.as_str()]).ok()?;
    listing.contains(CRI_LABEL).then_some(())
}

fn archive(folder: &Path, name: &str, layer: Tar, config: &serde_json::Value) -> Result<Archive> {
    let layer = layer.finish();
    let mut config = config.clone();
    config["Env"] = json!(["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]);
    let image = json!({
        "architecture": architecture()?,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer)?)]},
    })
    .to_string();
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    let mut tar = Tar::default();
    tar.file("config.json", 0o644, image.as_bytes());
    tar.file("layer.tar", 0o644, &layer);
    tar.file("manifest.json", 0o644, manifest.to_string().as_bytes());
    let path = folder.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    std::fs::create_dir_all(folder)?;
    std::fs::write(&path, tar.finish())?;
    Ok(Archive {
        path,
        name: name.to_owned(),
        is_pinned: false,
    })
}

/// The word of the image specification, which is Go's.
fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no images are made for {other}"),
    }
}

/// By coreutils: the only digest that is needed here is not worth a dependency.
fn sha256(bytes: &[u8]) -> Result<String> {
    use std::io::Write;
    use std::process::Stdio;
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().context("piped")?.write_all(bytes)?;
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .split_whitespace()
        .next()
        .context("sha256sum is silent")?
        .to_owned())
}

/// A tar in the making.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    fn folder(&mut self, path: &str) {
        self.header(path, b'5', 0o755, 0, "");
    }

    fn link(&mut self, path: &str, target: &str) {
        self.header(path, b'2', 0o777, 0, target);
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.header(path, b'0', mode, content.len(), "");
        self.bytes.extend_from_slice(content);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    fn header(&mut self, path: &str, kind: u8, mode: u32, size: usize, target: &str) {
        let mut header = [0u8; BLOCK];
        let mut put = |at: usize, text: &str| {
            header[at..at + text.len()].copy_from_slice(text.as_bytes());
        };
        put(0, path);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{size:011o}"));
        put(136, "00000000000");
        // The sum is taken with blanks in its own place.
        put(148, "        ");
        put(157, target);
        put(257, "ustar\x0000");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.bytes.extend_from_slice(&header);
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_itself_reads_what_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut tar = Tar::default();
        tar.folder("a/");
        tar.file("a/one", 0o644, b"hello");
        tar.link("a/two", "one");
        let path = folder.path().join("x.tar");
        std::fs::write(&path, tar.finish()).expect("written");
        let output = Command::new("tar")
            .arg("tvf")
            .arg(&path)
            .output()
            .expect("tar runs");
        let listing = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            listing.contains("a/two -> one") && listing.contains("a/one"),
            "{listing}"
        );
    }
}
