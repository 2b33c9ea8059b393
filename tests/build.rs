//! Compiles the pause program by itself, statically linked, for the pause image. A Cargo binary is
//! linked dynamically unless the whole build is told otherwise, and an image has no C library.

use std::path::PathBuf;
use std::process::Command;
use std::{env, process};

const SOURCE: &str = "../node/sys/src/bin/swiftlet-pause.rs";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).expect("cargo sets it for build scripts");
    let program = PathBuf::from(variable("OUT_DIR")).join("pause");
    let status = Command::new(variable("RUSTC"))
        .args([
            "--edition",
            "2024",
            "--crate-name",
            "pause",
            "--crate-type",
            "bin",
        ])
        .args(["--target", &variable("TARGET"), "-o"])
        .arg(&program)
        .args([
            "-C",
            "opt-level=s",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        .args(["-C", "lto=fat", "-C", "target-feature=+crt-static", SOURCE])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        eprintln!("cannot compile {SOURCE} with static linking");
        process::exit(1);
    }
}
