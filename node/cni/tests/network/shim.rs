//! The shim as a program.

use serde_json::{Value, json};

use super::node::{Namespace, Node, exec_plugin};

const SHIM: &str = env!("CARGO_BIN_EXE_swiftlet-cni");

fn variables<'a>(command: &'a str, netns: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]
}

#[test]
fn add_check_and_del_pass_through_the_shim() {
    let node = Node::new();
    let pod = Namespace::new();
    let run = |command| {
        exec_plugin(
            &node.host,
            SHIM,
            &variables(command, &pod.path()),
            &node.conf,
        )
    };
    let (ok, stdout) = run("ADD");
    assert!(ok, "{stdout}");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "10.88.0.2/16");
    assert_eq!(run("CHECK"), (true, String::new()));
    assert_eq!(run("DEL"), (true, String::new()));
    let (ok, stdout) = run("CHECK");
    assert!(!ok && stdout.contains("\"code\":104"), "{stdout}");
}

#[test]
fn without_the_node_add_fails_at_once_with_code_11() {
    let host = Namespace::new();
    let conf = json!({ "cniVersion": "0.4.0", "name": "n", "socket": "/nowhere/cni.sock" });
    for command in ["ADD", "DEL"] {
        let (ok, stdout) = exec_plugin(&host, SHIM, &variables(command, "/x"), &conf);
        let error: Value = serde_json::from_str(&stdout).unwrap();
        assert!(!ok);
        assert_eq!(error["code"], 11);
        assert_eq!(error["cniVersion"], "0.4.0");
        assert!(error["msg"].as_str().unwrap().contains("/nowhere/cni.sock"));
    }
    let (ok, stdout) = exec_plugin(&host, SHIM, &[], &conf);
    assert!(!ok && stdout.contains("CNI_COMMAND"), "{stdout}");
}

#[test]
fn versions_are_told_without_the_node() {
    let host = Namespace::new();
    let conf = json!({ "cniVersion": "1.0.0" });
    let (ok, stdout) = exec_plugin(&host, SHIM, &[("CNI_COMMAND", "VERSION")], &conf);
    assert!(ok);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(answer["cniVersion"], "1.0.0");
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        assert!(
            answer["supportedVersions"]
                .as_array()
                .unwrap()
                .contains(&json!(version))
        );
    }
}

#[test]
fn as_loopback_the_shim_brings_lo_up_without_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("loopback");
    std::os::unix::fs::symlink(SHIM, &program).unwrap();
    let (host, pod) = (Namespace::new(), Namespace::new());
    let conf = json!({ "cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback" });
    let path = pod.path();
    let run = |command| {
        exec_plugin(
            &host,
            program.to_str().unwrap(),
            &variables(command, &path),
            &conf,
        )
    };
    let (ok, stdout) = run("ADD");
    assert!(ok, "{stdout}");
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["ips"][0]["address"], "127.0.0.1/8");
    let lo = &pod.ip(&["addr", "show", "lo"])[0];
    assert!(lo["flags"].as_array().unwrap().contains(&json!("UP")));
    assert_eq!(lo["addr_info"][0]["local"], "127.0.0.1");
    assert_eq!(run("DEL"), (true, String::new()));
    let missing = exec_plugin(
        &host,
        program.to_str().unwrap(),
        &variables("ADD", "/nowhere/netns"),
        &conf,
    );
    assert!(
        !missing.0 && missing.1.contains("/nowhere/netns"),
        "{}",
        missing.1
    );
}
