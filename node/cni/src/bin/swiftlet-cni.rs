//! The CNI plugin `swiftlet-cni`, installed as `loopback` too: see `swiftlet_cni::shim`.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let program = std::env::args().next().unwrap_or_default();
    let answer = swiftlet_cni::shim::run(&program, &mut io::stdin().lock());
    match io::stdout().write_all(&answer.stdout) {
        Ok(()) => ExitCode::from(answer.exit_code),
        // Nobody reads the answer; the exit code is all that is left to say it with.
        Err(_) => ExitCode::FAILURE,
    }
}
