//! Logs, commands in containers and ports of pods, by the real kubectl of several versions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{LIMIT, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::programs;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Versions that speak in different ways: SPDY alone, WebSocket for commands, and for ports too.
const VERSIONS: [&str; 4] = ["1.27", "1.30", "1.32", "1.33"];
/// Bytes that pass through a command, in and out.
const BULK_BYTES: usize = 10 << 20;
/// Requests through one port-forward, and how many of them at a time.
const REQUESTS: usize = 1000;
const REQUESTS_PARALLEL: usize = 20;

fn stack() -> Result<(tempfile::TempDir, Stack)> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    Ok((folder, stack))
}

/// The kubectls of this machine that speak in different ways, by version.
fn kubectls(stack: &Stack) -> Result<Vec<(String, Kubectl)>> {
    let mut found = Vec::new();
    for (version, program) in programs::kubectls()? {
        if VERSIONS.contains(&version.as_str()) {
            found.push((version, Kubectl::new(&program, &stack.kubeconfig())));
        }
    }
    if found.is_empty() {
        found.push(("the one on the path".to_owned(), stack.kubectl()?));
    }
    Ok(found)
}

fn pod(stack: &Stack, name: &str, policy: &str, containers: &[(&str, &str)]) -> Value {
    let image = &stack.options().busybox_image;
    let containers: Vec<Value> = containers
        .iter()
        .map(
            |(name, script)| json!({"name": name, "image": image, "command": ["sh", "-c", script]}),
        )
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": policy,
            "containers": containers,
        },
    })
}

fn wait_ready(kubectl: &Kubectl, name: &str) -> Result<()> {
    let name = format!("pod/{name}");
    kubectl.run(&["wait", &name, "--for=condition=Ready", "--timeout=60s"])?;
    Ok(())
}

/// A process that is gone when this is.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn logs_are_what_containers_wrote() -> Result<()> {
    let (_folder, stack) = stack()?;
    let kubectl = stack.kubectl()?;
    let talk = [
        // The two streams are read apart from each other: only time puts them in order.
        (
            "a",
            "echo one; sleep 0.3; echo two >&2; sleep 0.3; echo three; sleep 3600",
        ),
        ("b", "echo other; sleep 3600"),
    ];
    kubectl.apply(&pod(&stack, "talk", "Always", &talk).to_string())?;
    let restarts = [("main", "echo before; [ -e /tmp/x ]; sleep 0.5; exit 3")];
    kubectl.apply(&pod(&stack, "restarts", "Always", &restarts).to_string())?;
    let mut absent = pod(&stack, "absent", "Always", &[("main", "true")]);
    absent["spec"]["containers"][0]["image"] = "registry.local/absent:1".into();
    absent["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    kubectl.apply(&absent.to_string())?;
    wait_ready(&kubectl, "talk")?;
    wait_for("all lines", LIMIT, || {
        let text = kubectl.run(&["logs", "talk", "-c", "a"]).ok()?;
        text.ends_with("three\n").then_some(())
    })?;
    for (version, kubectl) in kubectls(&stack)? {
        println!("kubectl {version}");
        flags(&kubectl)?;
        refusals(&kubectl)?;
        follow(&stack, &kubectl)?;
    }
    Ok(())
}

fn flags(kubectl: &Kubectl) -> Result<()> {
    let logs = |flags: &[&str]| kubectl.run(&[&["logs", "talk"], flags].concat());
    assert_eq!(logs(&["-c", "a"])?, "one\ntwo\nthree\n");
    assert_eq!(logs(&["-c", "a", "--tail=1"])?, "three\n");
    assert_eq!(logs(&["-c", "a", "--tail=0"])?, "");
    assert_eq!(logs(&["-c", "a", "--limit-bytes=5"])?, "one\nt");
    assert_eq!(logs(&["-c", "a", "--since=1h"])?, "one\ntwo\nthree\n");
    assert_eq!(logs(&["-c", "a", "--since-time=2099-01-01T00:00:00Z"])?, "");
    let stamped = logs(&["-c", "b", "--timestamps"])?;
    let (at, text) = stamped.trim().split_once(' ').context("a moment")?;
    assert!(at.starts_with("20") && text == "other", "{stamped}");
    let all = logs(&["--all-containers", "--prefix"])?;
    assert!(all.contains("[pod/talk/b] other"), "{all}");
    let selected = kubectl.run(&["logs", "-l", "app=talk", "--all-containers"])?;
    assert!(
        selected.contains("three") && selected.contains("other"),
        "{selected}"
    );
    let previous = wait_for("a container before", LIMIT, || {
        let previous = ["logs", "restarts", "--previous"];
        kubectl.run(&previous).ok()
    })?;
    assert_eq!(previous, "before\n");
    Ok(())
}

fn refusals(kubectl: &Kubectl) -> Result<()> {
    let raw = "/api/v1/namespaces/default/pods/talk/log";
    for (arguments, words) in [
        (&["logs", "gone"][..], "pods \"gone\" not found"),
        (
            &["logs", "talk", "-c", "z"],
            "container z is not valid for pod talk",
        ),
        (
            &["get", "--raw", raw],
            "a container name must be specified for pod talk, choose one of: [a b]",
        ),
        (
            &[
                "get",
                "--raw",
                "/api/v1/namespaces/default/pods/talk/log?container=a&tailLines=-1",
            ],
            "must be greater than or equal to 0",
        ),
        (
            &["logs", "talk", "-c", "a", "--previous"],
            "previous terminated container \"a\" in pod \"talk\" not found",
        ),
        (
            &["logs", "absent"],
            "container \"main\" in pod \"absent\" is waiting to start: ErrImageNeverPull",
        ),
    ] {
        let said = kubectl.refused(arguments)?;
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    Ok(())
}

/// Follows a log to the end of its container, which comes by itself.
fn follow(stack: &Stack, kubectl: &Kubectl) -> Result<()> {
    let script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done";
    kubectl.apply(&pod(stack, "ends", "Never", &[("main", script)]).to_string())?;
    let text = wait_for("the log to begin", LIMIT, || {
        kubectl.run(&["logs", "-f", "ends"]).ok()
    })?;
    assert_eq!(text, "line 1\nline 2\nline 3\nline 4\nline 5\n");
    kubectl.run(&["delete", "pod", "ends", "--now"])?;
    Ok(())
}

#[test]
fn commands_and_ports_work_with_every_kubectl() -> Result<()> {
    let (folder, stack) = stack()?;
    let kubectl = stack.kubectl()?;
    let www = "mkdir /www; echo hello > /www/index.html; httpd -f -p 8080 -h /www";
    kubectl.apply(&pod(&stack, "www", "Always", &[("main", www)]).to_string())?;
    wait_ready(&kubectl, "www")?;
    let node = stack.node().context("the node")?.pid();
    let before = descriptors(node)?;
    for (version, kubectl) in kubectls(&stack)? {
        println!("kubectl {version}");
        let work = folder.path().join(&version);
        std::fs::create_dir_all(&work)?;
        exec(&kubectl).with_context(|| format!("exec of {version}"))?;
        bulk(&kubectl).with_context(|| format!("bulk of {version}"))?;
        copies(&kubectl, &work).with_context(|| format!("cp of {version}"))?;
        terminals(&stack, &kubectl).with_context(|| format!("terminals of {version}"))?;
        ports(&kubectl).with_context(|| format!("port-forward of {version}"))?;
    }
    vanishing(&kubectl)?;
    // Nothing of all that is left in the node.
    wait_for("the node to close what it opened", LIMIT, || {
        let now = descriptors(node).ok()?;
        (now <= before + 8).then_some(())
    })?;
    kubectl.run(&["delete", "pods", "--all", "--now"])?;
    wait_gone(&kubectl)
}

fn descriptors(process: i32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

fn exec(kubectl: &Kubectl) -> Result<()> {
    let output = kubectl.output(&["exec", "www", "--", "sh", "-c", "echo out; echo err >&2"])?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("err\n"), "{err}");
    let output = kubectl.output(&["exec", "www", "--", "sh", "-c", "exit 7"])?;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = kubectl.refused(&["exec", "www", "--", "/no/such/program"])?;
    assert!(said.contains("no such file or directory"), "{said}");
    let said = kubectl.refused(&["exec", "gone", "--", "true"])?;
    assert!(said.contains("pods \"gone\" not found"), "{said}");
    let said = kubectl.refused(&["exec", "www", "-c", "z", "--", "true"])?;
    assert!(
        said.contains("container z is not valid for pod www"),
        "{said}"
    );
    Ok(())
}

/// Much through standard input and back; its end reaches the command.
fn bulk(kubectl: &Kubectl) -> Result<()> {
    let sent: Vec<u8> = (0u8..251).cycle().take(BULK_BYTES).collect();
    let mut child = kubectl
        .command(&["exec", "-i", "www", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()?;
    let mut input = child.stdin.take().context("piped")?;
    let expected = sent.clone();
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output()?;
    writer.join().expect("no panic")?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(
        output.stdout == expected,
        "{} bytes came back",
        output.stdout.len()
    );
    Ok(())
}

fn copies(kubectl: &Kubectl, work: &Path) -> Result<()> {
    let there = work.join("there");
    std::fs::create_dir_all(there.join("deep/er"))?;
    std::fs::write(there.join("deep/er/file"), vec![b'x'; 1 << 20])?;
    std::fs::write(there.join("small"), "small\n")?;
    kubectl.run(&["exec", "www", "--", "rm", "-rf", "/tmp/there"])?;
    let from = there.display().to_string();
    kubectl.run(&["cp", &from, "www:/tmp/there"])?;
    let back = work.join("back");
    let to = back.display().to_string();
    kubectl.run(&["cp", "www:/tmp/there", &to])?;
    for file in ["deep/er/file", "small"] {
        ensure!(
            std::fs::read(back.join(file))? == std::fs::read(there.join(file))?,
            "{file}"
        );
    }
    Ok(())
}

/// Runs a kubectl in a terminal of 33 rows and 77 columns and answers what was to be seen.
fn in_terminal(kubectl: &Kubectl, arguments: &[&str]) -> Result<String> {
    let command = kubectl.command(arguments);
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    let script = format!("stty rows 33 cols 77; {}", words.join(" "));
    let output = Command::new("script")
        .args(["-qec", &script, "/dev/null"])
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .context("script of util-linux")?;
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{arguments:?}: {seen}");
    Ok(seen)
}

fn terminals(stack: &Stack, kubectl: &Kubectl) -> Result<()> {
    // The size comes after the start.
    let size = "for i in 1 2 3 4 5 6 7 8 9; do [ \"$(stty size)\" = \"33 77\" ] && break; \
                sleep 0.2; done; stty size; tty";
    let seen = in_terminal(kubectl, &["exec", "-it", "www", "--", "sh", "-c", size])?;
    ensure!(
        seen.contains("33 77") && seen.contains("/dev/pts/"),
        "{seen}"
    );
    let image = &stack.options().busybox_image;
    let run = [
        "run",
        "once",
        "-it",
        "--rm",
        "--restart=Never",
        "--image",
        image,
        "--",
    ];
    let run = [&run[..], &["sh", "-c", "sleep 1; echo seen $((40 + 2))"]].concat();
    let seen = in_terminal(kubectl, &run)?;
    ensure!(
        seen.contains("seen 42") && seen.contains("deleted"),
        "{seen}"
    );
    let debug = [
        "debug",
        "www",
        "-it",
        "--image",
        image,
        "--target=main",
        "--",
    ];
    let debug = [
        &debug[..],
        &["sh", "-c", "sleep 1; ps; echo seen $((40 + 2))"],
    ]
    .concat();
    let seen = in_terminal(kubectl, &debug)?;
    ensure!(seen.contains("seen 42"), "{seen}");
    Ok(())
}

fn port_forward(kubectl: &Kubectl) -> Result<(Running, u16)> {
    let mut child = kubectl
        .command(&["port-forward", "pod/www", ":8080"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("piped")?;
    let running = Running(child);
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next().transpose()? {
        let port = line.strip_prefix("Forwarding from 127.0.0.1:");
        let port = port.and_then(|rest| rest.split(' ').next()?.parse().ok());
        if let Some(port) = port {
            // It says a line for each connection, and ends when nobody listens.
            std::thread::spawn(move || lines.count());
            return Ok((running, port));
        }
    }
    bail!("kubectl port-forward ended")
}

fn get(port: u16) -> Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(b"GET / HTTP/1.0\r\nHost: www\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.ends_with("hello\n"), "{answer:?}");
    Ok(())
}

fn ports(kubectl: &Kubectl) -> Result<()> {
    let (_running, port) = port_forward(kubectl)?;
    std::thread::scope(|scope| {
        let ask = || (0..REQUESTS / REQUESTS_PARALLEL).try_for_each(|_| get(port));
        let all: Vec<_> = (0..REQUESTS_PARALLEL).map(|_| scope.spawn(ask)).collect();
        all.into_iter()
            .try_for_each(|one| one.join().expect("no panic"))
    })
}

/// Clients that go away in the midst of everything.
fn vanishing(kubectl: &Kubectl) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..5 {
        for arguments in [
            &["exec", "www", "--", "sleep", "3600"][..],
            &["logs", "-f", "www"],
            &["attach", "www"],
        ] {
            let mut command = kubectl.command(arguments);
            let command = command.stdin(Stdio::null()).stdout(Stdio::null());
            all.push(Running(command.stderr(Stdio::null()).spawn()?));
        }
    }
    let sleeps = || kubectl.run(&["exec", "www", "--", "pidof", "sleep"]);
    wait_for("five commands to run", LIMIT, || {
        (sleeps().ok()?.split_whitespace().count() >= 5).then_some(())
    })?;
    for one in &all {
        kill(Pid::from_raw(i32::try_from(one.0.id())?), Signal::SIGKILL)?;
    }
    drop(all);
    Ok(())
}
