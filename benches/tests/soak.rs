//! The soak's short form, as the whole test runs it.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

const CYCLES: u64 = 40;
const KILL_EVERY: u64 = 12;

#[test]
fn pods_come_and_go_among_crashes_and_leave_nothing() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let output = Command::new(env!("CARGO_BIN_EXE_swiftlet-bench"))
        .arg("soak")
        .arg("--dir")
        .arg(folder.path().join("s"))
        .args(["--cycles", &CYCLES.to_string()])
        .args(["--kill-every", &KILL_EVERY.to_string()])
        .args(["--restart-agent", "--settle-s", "60"])
        .output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{words}");
    let summary = text.lines().last().context("a summary")?;
    let summary: Value = serde_json::from_str(summary)?;
    assert_eq!(summary["cycles"], CYCLES, "{summary}");
    let kills = summary["kills"].as_object().context("kills")?;
    let kills: u64 = kills.values().filter_map(Value::as_u64).sum();
    assert_eq!(kills, CYCLES / KILL_EVERY, "{summary}");
    assert_eq!(summary["leaks"], Value::Array(Vec::new()), "{summary}");
    Ok(())
}
