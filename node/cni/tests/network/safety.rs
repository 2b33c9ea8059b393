//! Who has an address keeps it: through restarts, sweeps, failures, and with its ports.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::{Value, json};
use swiftlet_cni::observer::{NetworkAttached, NetworkObserver};
use swiftlet_cni::options::NetworkOptions;
use swiftlet_cni::shim_server::start;
use swiftlet_cni::wire::ShimRequest;

use super::detach::wait_for_no_veth;
use super::leftovers::sweep;
use super::node::{Namespace, Node, address, reaches};

/// The conf of a pod with a host port.
fn with_port(node: &Node) -> Value {
    let mut conf = node.conf.clone();
    let port = json!({ "hostPort": 8080, "containerPort": 80, "protocol": "tcp" });
    conf["runtimeConfig"] = json!({ "portMappings": [port] });
    conf
}

fn rules(node: &Node) -> String {
    node.host.output(&["nft", "list", "ruleset"])
}

fn port_file(node: &Node) -> PathBuf {
    node.dir.path().join("ipam/hostports/c1")
}

#[test]
fn a_pod_of_before_a_restart_that_the_runtime_does_not_list_yet_keeps_all() {
    let mut node = Node::new();
    let pod = Namespace::new();
    let conf = with_port(&node);
    let result = node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    assert_eq!(node.handle.as_ref().unwrap().reconcile(&[]).unwrap(), 0);
    assert_eq!(sweep(&node, &[]), 0, "the first look");
    assert_eq!(sweep(&node, &["c1"]), 0, "it is listed");
    assert_eq!(sweep(&node, &["c1"]), 0);
    node.ask_with("CHECK", "c1", &pod.path(), &conf).unwrap();
    assert!(rules(&node).contains("10.88.0.2"));
    assert!(reaches(&node.host, &pod, address(&result)));
}

#[test]
fn a_pair_without_a_sandbox_goes_with_its_address_at_the_second_sweep_after_a_restart() {
    let mut node = Node::new();
    let pod = Namespace::new();
    node.add("c1", &pod).unwrap();
    node.handle.take().unwrap().shutdown();
    node.start();
    assert_eq!(node.handle.as_ref().unwrap().reconcile(&[]).unwrap(), 0);
    assert_eq!(sweep(&node, &[]), 0);
    assert_eq!(sweep(&node, &[]), 1);
    assert!(node.reserved().is_empty() && node.host.veths().is_empty());
}

#[test]
fn an_address_is_not_free_while_a_port_leads_to_it() {
    let node = Node::new();
    let pod = Namespace::new();
    let conf = with_port(&node);
    node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    // A file that cannot be removed.
    fs::remove_file(port_file(&node)).unwrap();
    fs::create_dir(port_file(&node)).unwrap();
    node.ask_with("DEL", "c1", &pod.path(), &conf).unwrap_err();
    assert_eq!(node.reserved(), ["10.88.0.2"], "after DEL");
    let mut garbage = node.conf.clone();
    garbage["cniVersion"] = json!("1.1.0");
    node.ask_with("GC", "", "", &garbage).unwrap_err();
    assert_eq!(node.reserved(), ["10.88.0.2"], "after GC");
    drop(pod);
    wait_for_no_veth(&node);
    let sweeper = node.handle.as_ref().unwrap().sweeper();
    assert_eq!(sweeper.sweep(&[]).unwrap(), 0);
    sweeper.sweep(&[]).unwrap_err();
    assert_eq!(node.reserved(), ["10.88.0.2"], "after a sweep");
    fs::remove_dir(port_file(&node)).unwrap();
    node.ask_with("DEL", "c1", "", &conf).unwrap();
    assert!(node.reserved().is_empty() && !rules(&node).contains("10.88.0.2"));
}

#[test]
fn gc_closes_the_ports_to_what_it_frees_and_no_others() {
    let node = Node::new();
    let pods = [(); 2].map(|()| Namespace::new());
    node.ask_with("ADD", "c1", &pods[0].path(), &with_port(&node))
        .unwrap();
    let mut other = with_port(&node);
    other["runtimeConfig"]["portMappings"][0]["hostPort"] = json!(8081);
    node.ask_with("ADD", "c2", &pods[1].path(), &other).unwrap();
    let mut garbage = node.conf.clone();
    garbage["cniVersion"] = json!("1.1.0");
    let valid = json!([{ "containerID": "c2", "ifname": "eth0" }]);
    garbage["cni.dev/valid-attachments"] = valid;
    node.ask_with("GC", "", "", &garbage).unwrap();
    assert_eq!(node.reserved(), ["10.88.0.3"]);
    let rules = rules(&node);
    assert!(
        !rules.contains("10.88.0.2") && rules.contains("10.88.0.3"),
        "{rules}"
    );
    assert!(!port_file(&node).exists());
}

#[test]
fn del_does_not_mind_what_was_written_into_the_conf_later() {
    let node = Node::new();
    let pod = Namespace::new();
    let mut conf = with_port(&node);
    node.ask_with("ADD", "c1", &pod.path(), &conf).unwrap();
    conf["addedLater"] = json!(true);
    conf["ipam"]["ranges"] = json!("of another program");
    node.ask_with("DEL", "c1", &pod.path(), &conf).unwrap();
    assert!(node.reserved().is_empty() && !rules(&node).contains("10.88.0.2"));
    let result = node.add("c1", &pod).unwrap();
    assert!(reaches(&node.host, &pod, address(&result)));
}

/// Holds up the answer to each ADD until the test goes on.
struct Gate {
    reached: mpsc::SyncSender<()>,
    open: Mutex<mpsc::Receiver<()>>,
}

impl NetworkObserver for Gate {
    fn attached(&self, _: NetworkAttached) {
        self.reached.send(()).unwrap();
        self.open.lock().unwrap().recv().unwrap();
    }
}

/// Sends an ADD and does not wait for the answer.
fn send_add(node: &Node, pod: &Namespace) -> UnixStream {
    let request = ShimRequest {
        command: "ADD".into(),
        container_id: "c1".into(),
        netns: pod.path(),
        ifname: "eth0".into(),
        conf: with_port(node).to_string().into_bytes(),
        ..ShimRequest::default()
    };
    let mut stream = UnixStream::connect(node.socket()).unwrap();
    request.write_to(&mut stream).unwrap();
    stream
}

/// With one worker, whose answer to the next request says that it is done with the one before.
fn restarted(node: &mut Node, options: impl FnOnce(NetworkOptions) -> NetworkOptions) {
    node.handle.take().unwrap().shutdown();
    let options = options(NetworkOptions {
        workers: 1,
        ..node.options()
    });
    node.handle = Some(start(options).unwrap());
}

#[test]
fn an_add_that_nobody_waits_for_any_more_leaves_nothing() {
    let mut node = Node::new();
    let (reached, reaching) = mpsc::sync_channel(1);
    let (go_on, open) = mpsc::sync_channel(1);
    let open = Mutex::new(open);
    let gate = Gate { reached, open };
    restarted(&mut node, |options| NetworkOptions {
        observer: Some(Arc::new(gate)),
        ..options
    });
    let pod = Namespace::new();
    let client = send_add(&node, &pod);
    reaching.recv().unwrap();
    assert_eq!(node.reserved(), ["10.88.0.2"]);
    drop(client);
    go_on.send(()).unwrap();
    node.ask("STATUS", "", "").unwrap();
    assert!(node.reserved().is_empty() && node.host.veths().is_empty());
    assert!(!rules(&node).contains("10.88.0.2"));
    assert_eq!(pod.links(), ["lo"]);
}

#[test]
fn an_add_whose_client_gave_up_in_the_queue_is_not_begun() {
    let mut node = Node::new();
    let (reached, reaching) = mpsc::sync_channel(2);
    let (go_on, open) = mpsc::sync_channel(2);
    let open = Mutex::new(open);
    let gate = Gate { reached, open };
    restarted(&mut node, |options| NetworkOptions {
        observer: Some(Arc::new(gate)),
        ..options
    });
    let [first, second] = [(); 2].map(|()| Namespace::new());
    // The only worker is busy with the first when the second comes and goes.
    let holds = send_add(&node, &first);
    reaching.recv().unwrap();
    drop(send_add(&node, &second));
    drop(holds);
    go_on.send(()).unwrap();
    node.ask("STATUS", "", "").unwrap();
    assert!(reaching.try_recv().is_err(), "it was attached");
    assert!(node.reserved().is_empty() && node.host.veths().is_empty());
}

#[test]
fn a_second_network_cannot_take_over_the_interface_of_the_first() {
    let mut node = Node::new();
    let pod = Namespace::new();
    let result = node.add("c1", &pod).unwrap();
    let mut other = node.conf.clone();
    other["name"] = json!("other");
    other["ipam"]["subnet"] = json!("10.88.0.0/16");
    let refused = |node: &Node, conf: &Value| {
        let refusal = node.ask_with("ADD", "c1", &pod.path(), conf).unwrap_err();
        assert_eq!(refusal["code"], 103, "{refusal}");
        assert!(reaches(&node.host, &pod, address(&result)));
    };
    refused(&node, &other);
    // The first network is not open: its files tell.
    node.handle.take().unwrap().shutdown();
    let first = std::mem::replace(&mut node.conf, other.clone());
    node.start();
    refused(&node, &other);
    // After the ranges have changed.
    node.handle.take().unwrap().shutdown();
    node.conf = first;
    node.conf["ipam"]["subnet"] = json!("10.88.128.0/17");
    node.conf["ipam"]["gateway"] = json!("10.88.128.1");
    node.start();
    refused(&node, &node.conf);
    let others = fs::read_dir(node.dir.path().join("ipam/other")).unwrap();
    let names = others.map(|entry| entry.unwrap().file_name());
    assert!(
        names
            .into_iter()
            .all(|name| !Path::new(&name).starts_with("10.88.0.2"))
    );
}
