//! Compiles the kernel programs (`ebpf/programs`) and leaves the object where `src/loader.rs`
//! embeds it.
//!
//! Three ways, the first that is there wins:
//! 1. `SWIFTLET_BPF_OBJECT` names an object that was built before.
//! 2. rustup's nightly with rust-src, and a `bpf-linker` for that compiler's LLVM.
//! 3. Debian's compiler (packages rustc-web, cargo-web, rust-web-src) and a `bpf-linker` for its
//!    LLVM, as `make deps` installs them.
//!
//! A node without its kernel programs is never built silently.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use object::build::elf::{Builder, SectionData};

const OVERRIDE: &str = "SWIFTLET_BPF_OBJECT";
const LINKER_VERSION: &str = "0.13.0";
const TARGET: &str = "bpfel-unknown-none";
const PROGRAM: &str = "swiftlet-ebpf-programs";
const REMEDY: &str = "the eBPF programs cannot be built here: run `sudo make deps`, which installs \
                      Debian's rustc-web, cargo-web and rust-web-src and a bpf-linker for their \
                      LLVM";

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() {
    if let Err(error) = build() {
        // Cargo shows the last lines of a failed build script's standard error.
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn build() -> Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../ebpf");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    for source in [
        "abi/Cargo.toml",
        "abi/src",
        "programs/Cargo.toml",
        "programs/Cargo.lock",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(source).display());
    }
    println!(
        "cargo:rerun-if-changed={}",
        root.join("programs/src").display()
    );
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed={OVERRIDE}");
    let object = match env::var_os(OVERRIDE).filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => compile(
            &find_toolchain()?,
            &root.join("programs"),
            &out.join("ebpf"),
        )?,
    };
    let bytes = fs::read(&object).map_err(|error| format!("{}: {error}", object.display()))?;
    fs::write(out.join("programs.o"), strip(&bytes)?)?;
    Ok(())
}

// === The compiler ===

/// A compiler with the sources of `core`, and a linker that reads its bitcode.
struct Toolchain {
    /// `cargo` with the words before its own arguments.
    cargo: Vec<String>,
    /// The compiler, where `cargo` would otherwise find another one on the path.
    rustc: Option<PathBuf>,
    /// Search path of the inner build.
    path: String,
    linker: PathBuf,
}

fn find_toolchain() -> Result<Toolchain> {
    let mut refusals = Vec::new();
    for candidate in [rustup_nightly as fn() -> Result<Toolchain>, debian] {
        match candidate() {
            Ok(toolchain) => return Ok(toolchain),
            Err(refusal) => refusals.push(refusal.to_string()),
        }
    }
    Err(format!("{REMEDY} ({})", refusals.join("; ")).into())
}

fn rustup_nightly() -> Result<Toolchain> {
    let nightly = ["rustup", "run", "nightly"];
    let rustc: Vec<&str> = nightly.iter().copied().chain(["rustc"]).collect();
    let version = answer(&rustc, &["-vV"]).map_err(|_| "rustup has no nightly")?;
    let sysroot = answer(&rustc, &["--print", "sysroot"])?;
    if !has_core_sources(Path::new(sysroot.trim())) {
        return Err("rustup's nightly has no rust-src".into());
    }
    Ok(Toolchain {
        cargo: nightly
            .iter()
            .copied()
            .chain(["cargo"])
            .map(String::from)
            .collect(),
        rustc: None,
        path: env::var("PATH")?,
        linker: find_linker("rustup's nightly", &version)?,
    })
}

fn debian() -> Result<Toolchain> {
    let (cargo, rustc) = (Path::new("/usr/bin/cargo"), Path::new("/usr/bin/rustc"));
    if !cargo.exists() || !rustc.exists() {
        return Err("there is no /usr/bin/cargo with /usr/bin/rustc".into());
    }
    let version = answer(&["/usr/bin/rustc"], &["-vV"])?;
    let sysroot = answer(&["/usr/bin/rustc"], &["--print", "sysroot"])?;
    if !has_core_sources(Path::new(sysroot.trim())) {
        return Err("/usr/bin/rustc has no sources (rust-web-src)".into());
    }
    Ok(Toolchain {
        cargo: vec![cargo.display().to_string()],
        rustc: Some(rustc.to_owned()),
        // Without rustup's proxies, which would take over.
        path: "/usr/local/bin:/usr/bin:/bin".to_owned(),
        linker: find_linker("/usr/bin/rustc", &version)?,
    })
}

fn has_core_sources(sysroot: &Path) -> bool {
    sysroot
        .join("lib/rustlib/src/rust/library/core/src/lib.rs")
        .exists()
}

/// The linker that `make deps` built for this LLVM, or the one on the path. The latter does not
/// tell its LLVM: it must be that of the compiler, and reading its bitcode fails with a message of
/// its own if not.
fn find_linker(compiler: &str, version: &str) -> Result<PathBuf> {
    let llvm = version
        .lines()
        .find_map(|line| line.strip_prefix("LLVM version: "))
        .and_then(|version| version.split('.').next())
        .ok_or_else(|| format!("{compiler} does not tell its LLVM version"))?;
    let cache = env::var_os("XDG_CACHE_HOME")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let built = cache.map(|cache| {
        cache.join(format!(
            "swiftlet/bpf-linker-{LINKER_VERSION}-llvm{llvm}/bin/bpf-linker"
        ))
    });
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|folder| folder.join("bpf-linker"));
    built
        .into_iter()
        .chain(on_path)
        .find(|linker| linker.exists())
        .ok_or_else(|| format!("{compiler} needs a bpf-linker built for LLVM {llvm}").into())
}

fn answer(command: &[&str], arguments: &[&str]) -> Result<String> {
    let mut command_line = Command::new(command[0]);
    scrub(&mut command_line);
    let output = command_line
        .args(&command[1..])
        .args(arguments)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        return Err(format!("{} failed", command.join(" ")).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

// === The build ===

fn compile(toolchain: &Toolchain, programs: &Path, target_dir: &Path) -> Result<PathBuf> {
    // What is already fetched needs no network; what is not is fetched once.
    let offline = run_cargo(toolchain, programs, target_dir, true)?;
    if !offline.0 {
        let online = run_cargo(toolchain, programs, target_dir, false)?;
        if !online.0 {
            return Err(format!("the eBPF programs do not compile:\n{}", online.1).into());
        }
    }
    Ok(target_dir.join(TARGET).join("release").join(PROGRAM))
}

/// Runs the inner cargo; answers whether it succeeded and what it said.
fn run_cargo(
    toolchain: &Toolchain,
    programs: &Path,
    target_dir: &Path,
    offline: bool,
) -> Result<(bool, String)> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let flags = [
        &format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
    ];
    let mut command = Command::new(&toolchain.cargo[0]);
    scrub(&mut command);
    command
        .args(&toolchain.cargo[1..])
        .args([
            "build",
            "--release",
            "--locked",
            "--target",
            TARGET,
            "-Z",
            "build-std=core",
        ])
        .arg("--target-dir")
        .arg(target_dir)
        .current_dir(programs)
        .env("PATH", &toolchain.path)
        // Debian's compiler is a stable one; a nightly does not mind.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &toolchain.linker)
        .stdin(Stdio::null());
    if offline {
        command.arg("--offline");
    }
    if let Some(rustc) = &toolchain.rustc {
        command.env("RUSTC", rustc);
    }
    let output = command.output()?;
    Ok((
        output.status.success(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

/// Takes away what the outer cargo says about its own compiler, flags, target and job server; where
/// crates come from stays.
fn scrub(command: &mut Command) {
    const KEPT: [&str; 6] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTRIES_",
        "CARGO_REGISTRY_",
        "CARGO_SOURCE_",
    ];
    const OTHERS: [&str; 5] = ["MAKEFLAGS", "LD_LIBRARY_PATH", "TARGET", "HOST", "OUT_DIR"];
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        let of_rustup = name.starts_with("RUSTUP_") && name != "RUSTUP_TOOLCHAIN";
        let kept = of_rustup || KEPT.iter().any(|start| name.starts_with(start));
        let of_cargo = name.starts_with("CARGO") || name.starts_with("RUST");
        if (of_cargo && !kept) || OTHERS.contains(&name) {
            command.env_remove(name);
        }
    }
}

// === The object ===

/// Leaves out what only debuggers read; BTF stays.
fn strip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut builder = Builder::read(bytes)?;
    for section in &mut builder.sections {
        let name: &[u8] = &section.name;
        let name = name.strip_prefix(b".rel").unwrap_or(name);
        section.delete = name.starts_with(b".debug");
    }
    // LLVM keeps the sections' names and the symbols' in one table; the builder writes two.
    let names = builder.sections.add();
    names.name = b".shstrtab".as_slice().into();
    names.sh_type = object::elf::SHT_STRTAB;
    names.sh_addralign = 1;
    names.data = SectionData::SectionString;
    builder.delete_orphans();
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}
