//! The node is killed between every two steps; what it leaves is gone after DEL, or after the
//! sandbox was forgotten, and the next ADD works.
//!
//! Which steps there are is found out by letting everything happen once.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use swiftlet_cni::failpoint::{DIE_VARIABLE, LOG_VARIABLE};
use swiftlet_cni::wire::{ShimReply, ShimRequest};
use tempfile::TempDir;

use super::node::{Namespace, address, reaches};

const SERVER: &str = env!("CARGO_BIN_EXE_swiftlet-cni-server");
/// How long the kernel may take to clean up a namespace.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(10);

/// A host whose network is a process that can die.
struct Host {
    netns: Namespace,
    dir: TempDir,
    conf: Value,
}

/// The process.
struct Server {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

/// What can be left behind.
#[derive(Debug, PartialEq, Eq)]
struct State {
    links: Vec<String>,
    qdiscs: String,
    /// By table.
    rules: Vec<String>,
    files: Vec<PathBuf>,
}

impl Host {
    fn new() -> Self {
        let netns = Namespace::new();
        netns.output(&["ip", "link", "set", "lo", "up"]);
        let dir = tempfile::tempdir().unwrap();
        let ports = [("tcp", 8080), ("udp", 8053)].map(|(protocol, port)| {
            json!({ "hostPort": port, "containerPort": 80, "protocol": protocol })
        });
        let conf = json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "swiftlet-cni", "bridge": "sw0",
            "isGateway": true, "hairpinMode": true, "ipMasq": true,
            "socket": dir.path().join("cni.sock"),
            "macspoofchk": true,
            "runtimeConfig": { "portMappings": ports, "bandwidth": {
                "ingressRate": 80_000_000, "ingressBurst": 8_000_000,
                "egressRate": 80_000_000, "egressBurst": 8_000_000 } },
            "ipam": { "type": "host-local", "dataDir": dir.path().join("ipam"),
                      "ranges": [[{ "subnet": "10.88.0.0/16" }], [{ "subnet": "fd88::/64" }]],
                      "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }] },
        });
        Self { netns, dir, conf }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("places")
    }

    /// Starts the process, to die at a place or never; `None` if that was during the start.
    fn start(&self, die_at: Option<usize>) -> Option<Server> {
        // Written at the node's start, before any pod asks for anything.
        let mut conf = self.conf.clone();
        conf.as_object_mut().unwrap().remove("runtimeConfig");
        let path = self.dir.path().join("conf");
        fs::write(&path, conf.to_string()).unwrap();
        let mut command = Command::new(SERVER);
        command.arg(self.dir.path().join("cni.sock"));
        command.arg(path).arg(self.netns.path());
        if let Some(number) = die_at {
            command.env(LOG_VARIABLE, self.log());
            command.env(DIE_VARIABLE, number.to_string());
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut server = Server {
            stdin: child.stdin.take().unwrap(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        let ready = server.line() == "ready";
        if !ready {
            server.expect_killed();
        }
        ready.then_some(server)
    }

    /// One request; `None` if the node died over it.
    fn ask(&self, command: &str, id: &str, netns: &str) -> Option<Result<Value, Value>> {
        let request = ShimRequest {
            command: command.into(),
            container_id: id.into(),
            netns: netns.into(),
            ifname: "eth0".into(),
            conf: self.conf.to_string().into_bytes(),
            ..ShimRequest::default()
        };
        let mut stream = UnixStream::connect(self.dir.path().join("cni.sock")).ok()?;
        request.write_to(&mut stream).ok()?;
        Some(match ShimReply::read_from(&mut stream).ok()? {
            ShimReply::Result(body) if body.is_empty() => Ok(Value::Null),
            ShimReply::Result(body) => Ok(serde_json::from_slice(&body).unwrap()),
            ShimReply::Error(body) => Err(serde_json::from_slice(&body).unwrap()),
        })
    }

    fn must(&self, command: &str, id: &str, netns: &str) -> Value {
        let answer = self.ask(command, id, netns);
        answer.expect("the node is there").expect(command)
    }

    /// Start, ADD and DEL, up to where the node dies.
    fn live_and_die(&self, die_at: usize, pod: &Namespace) {
        let Some(mut server) = self.start(Some(die_at)) else {
            return;
        };
        let answers = ["ADD", "DEL"].map(|command| self.ask(command, "c1", &pod.path()));
        assert!(
            answers.iter().any(Option::is_none),
            "nothing happened at place {die_at}"
        );
        server.expect_killed();
    }

    fn state(&self) -> State {
        let mut files = Vec::new();
        list(self.dir.path(), &mut files);
        // Of the test itself, and what a dead process could not take away.
        let of_a_pod = |path: &PathBuf| path.starts_with(self.dir.path().join("ipam"));
        files.retain(of_a_pod);
        files.sort();
        // Which table was made first does not matter.
        let text = self.netns.output(&["nft", "list", "ruleset"]);
        let mut rules: Vec<_> = text.split("\n}\n").map(str::to_owned).collect();
        rules.sort();
        State {
            links: self.netns.links(),
            qdiscs: self.netns.output(&["tc", "qdisc", "show"]),
            rules,
            files,
        }
    }

    fn wait_for_no_veth(&self) {
        let limit = Instant::now() + CLEAN_UP_LIMIT;
        while !self.netns.veths().is_empty() {
            assert!(Instant::now() < limit, "left: {:?}", self.netns.veths());
            std::thread::yield_now();
        }
    }
}

impl Server {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self, command: &str) -> usize {
        writeln!(self.stdin, "{command}").unwrap();
        self.line().parse().unwrap()
    }

    fn end(mut self) {
        drop(self.stdin);
        assert!(self.child.wait().unwrap().success());
    }

    fn expect_killed(&mut self) {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{status}");
    }
}

fn list(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, found);
        }
        found.push(path);
    }
}

/// All places that a start, an ADD and a DEL pass, and what a node looks like afterwards.
fn record() -> (Vec<String>, State) {
    let host = Host::new();
    let pod = Namespace::new();
    let server = host.start(Some(usize::MAX)).unwrap();
    host.must("ADD", "c1", &pod.path());
    host.must("DEL", "c1", &pod.path());
    let log = fs::read_to_string(host.log()).unwrap();
    server.end();
    drop(pod);
    host.wait_for_no_veth();
    let state = host.state();
    let own = format!("{}/", host.dir.path().display());
    let state = relative(state, &own);
    (
        log.lines().map(|line| line.replace(&own, "")).collect(),
        state,
    )
}

fn relative(mut state: State, folder: &str) -> State {
    for path in &mut state.files {
        *path = path.strip_prefix(folder).unwrap().to_owned();
    }
    state
}

/// Compares with a node that nothing ever happened to.
fn expect_clean(host: &Host, clean: &State, place: &str) {
    let state = relative(host.state(), &format!("{}/", host.dir.path().display()));
    assert_eq!(&state, clean, "killed {place}");
}

#[test]
fn del_removes_what_a_node_leaves_that_was_killed_at_any_place() {
    let (places, clean) = record();
    for (number, place) in places.iter().enumerate() {
        let host = Host::new();
        let pod = Namespace::new();
        host.live_and_die(number + 1, &pod);
        let mut server = host.start(None).unwrap();
        server.tell("reconcile c1");
        host.must("DEL", "c1", &pod.path());
        let result = host.must("ADD", "c1", &pod.path());
        assert!(
            reaches(&host.netns, &pod, address(&result)),
            "killed {place}"
        );
        host.must("CHECK", "c1", &pod.path());
        host.must("DEL", "c1", &pod.path());
        server.end();
        drop(pod);
        host.wait_for_no_veth();
        expect_clean(&host, &clean, place);
    }
    println!("killed at each of {} places", places.len());
}

#[test]
fn a_pod_that_was_answered_before_the_node_was_killed_keeps_its_network() {
    let host = Host::new();
    let [pod, next] = [(); 2].map(|()| Namespace::new());
    let mut server = host.start(None).unwrap();
    let result = host.must("ADD", "c1", &pod.path());
    server.child.kill().unwrap();
    server.expect_killed();
    let mut server = host.start(None).unwrap();
    // The runtime lists a sandbox when it is made, after both of these looks.
    assert_eq!(server.tell("reconcile"), 0);
    assert_eq!(server.tell("sweep"), 0);
    host.must("CHECK", "c1", &pod.path());
    let refusal = host.ask("ADD", "c2", &next.path()).unwrap().unwrap_err();
    assert_eq!(refusal["code"], 105, "its host ports too: {refusal}");
    for _ in 0..2 {
        assert_eq!(server.tell("sweep c1"), 0);
    }
    assert!(reaches(&host.netns, &pod, address(&result)));
    host.must("DEL", "c1", &pod.path());
    server.end();
}

#[test]
fn a_forgotten_sandbox_leaves_nothing_wherever_the_node_was_killed() {
    let (places, clean) = record();
    for (number, place) in places.iter().enumerate() {
        let host = Host::new();
        let pod = Namespace::new();
        host.live_and_die(number + 1, &pod);
        let mut server = host.start(None).unwrap();
        server.tell("reconcile");
        server.tell("sweep");
        server.tell("sweep");
        // The namespace is still there, and nothing leads to it.
        assert!(host.netns.veths().is_empty(), "killed {place}");
        let next = Namespace::new();
        let result = host.must("ADD", "c2", &next.path());
        assert!(
            reaches(&host.netns, &next, address(&result)),
            "killed {place}"
        );
        host.must("DEL", "c2", &next.path());
        server.end();
        drop(next);
        host.wait_for_no_veth();
        expect_clean(&host, &clean, place);
    }
    println!("killed at each of {} places", places.len());
}
