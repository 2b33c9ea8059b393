//! The shim as a program.

use serde_json::{Value, json};

use super::node::{Namespace, Node, exec_plugin};
use super::runtime::{REFERENCE_DIR, SHIM};

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

#[test]
fn as_loopback_the_shim_answers_as_the_reference_does() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("loopback");
    std::os::unix::fs::symlink(SHIM, &program).unwrap();
    let reference = format!("{REFERENCE_DIR}/loopback");
    let previous = json!({ "cniVersion": "1.0.0", "interfaces": [{ "name": "x" }], "dns": {} });
    for (version, before) in [
        ("0.3.1", None),
        ("0.4.0", None),
        ("1.0.0", None),
        ("1.0.0", Some(&previous)),
    ] {
        let mut conf = json!({ "cniVersion": version, "name": "lo", "type": "loopback" });
        if let Some(before) = before {
            conf["prevResult"] = before.clone();
        }
        let [ours, theirs] = [program.to_str().unwrap(), &reference].map(|program| {
            let (host, pod) = (Namespace::new(), Namespace::new());
            let run =
                |command| exec_plugin(&host, program, &variables(command, &pod.path()), &conf);
            // There is no CHECK before 0.4.0.
            let check = || (!version.starts_with("0.3")).then(|| run("CHECK"));
            let before_add = check();
            let (ok, stdout) = run("ADD");
            assert!(ok, "{stdout}");
            let mut result: Value = serde_json::from_str(&stdout).unwrap();
            // The reference forgets it in 0.3, where it is required.
            for ip in result["ips"].as_array_mut().into_iter().flatten() {
                ip.as_object_mut().unwrap().remove("version");
            }
            if let Some(sandbox) = result["interfaces"][0].get_mut("sandbox") {
                *sandbox = json!("the pod's");
            }
            let says_down =
                |(ok, text): (bool, String)| (ok, text.contains("loopback interface is down"));
            (result, before_add.map(says_down), check())
        });
        assert_eq!(ours, theirs, "{version}");
    }
}

#[test]
fn status_and_gc_are_those_of_the_node() {
    let node = Node::new();
    let pods = [Namespace::new(), Namespace::new()];
    let mut conf = node.conf.clone();
    conf["cniVersion"] = json!("1.1.0");
    let run = |command: &str, id: &str, netns: &str, conf: &Value| {
        let mut variables = variables(command, netns);
        variables[1].1 = id;
        exec_plugin(&node.host, SHIM, &variables, conf)
    };
    assert_eq!(run("STATUS", "", "", &conf), (true, String::new()));
    for (id, pod) in [("c0", &pods[0]), ("c1", &pods[1])] {
        let (ok, stdout) = run("ADD", id, &pod.path(), &conf);
        assert!(
            ok && stdout.contains("\"cniVersion\":\"1.1.0\""),
            "{stdout}"
        );
    }
    let mut gc = conf.clone();
    gc["cni.dev/valid-attachments"] = json!([{ "containerID": "c1", "ifname": "eth0" }]);
    assert_eq!(run("GC", "", "", &gc), (true, String::new()));
    assert_eq!(node.reserved(), ["10.88.0.3"]);
    let without_node = json!({
        "cniVersion": "1.1.0", "name": "n", "socket": "/nowhere/cni.sock",
    });
    let (ok, stdout) = run("STATUS", "", "", &without_node);
    let error: Value = serde_json::from_str(&stdout).unwrap();
    assert!(!ok);
    assert_eq!(
        (&error["code"], &error["cniVersion"]),
        (&json!(50), &json!("1.1.0"))
    );
}
