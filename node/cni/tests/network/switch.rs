//! A node changes from the reference plugins to this one and back, with pods running.

use serde_json::{Value, json};
use swiftlet_cni::shim_server::start;

use super::node::{Namespace, Node, address, reaches};
use super::runtime::Runtime;

fn as_reference(conf: &Value) -> Value {
    let mut bridge = conf.clone();
    bridge["type"] = json!("bridge");
    bridge
}

/// Both ways, and the node to both.
fn all_reach_each_other(node: &Node, pods: &[(&Namespace, &Value)]) {
    for (from, _) in pods {
        for (to, result) in pods {
            assert!(reaches(from, to, address(result)));
        }
    }
    for (pod, result) in pods {
        assert!(reaches(&node.host, pod, address(result)));
    }
}

fn switch(change: impl Fn(&mut Value)) {
    let mut node = Node::with(change);
    let ours = [node.conf.clone()];
    let theirs = [as_reference(&node.conf)];
    let pods: Vec<_> = (0..5).map(|_| Namespace::new()).collect();
    // The work of the loopback plugin.
    for pod in &pods {
        pod.output(&["ip", "link", "set", "lo", "up"]);
    }
    {
        let runtime = Runtime::new(&node.host, &theirs);
        let first = runtime.add("c0", &pods[0]).unwrap();
        let second = runtime.add("c1", &pods[1]).unwrap();
        // From the reference to this plugin: the agent finds what is there when it starts.
        node.handle.take().unwrap().shutdown();
        let options = node.options();
        node.handle = Some(start(options).unwrap());
        let runtime = runtime.with_plugins(&ours);
        runtime.check("c0", &pods[0]).unwrap();
        runtime.check("c1", &pods[1]).unwrap();
        let third = runtime.add("c2", &pods[2]).unwrap();
        let known = [(&pods[0], &first), (&pods[1], &second), (&pods[2], &third)];
        all_reach_each_other(&node, &known);
        assert_eq!(node.reserved(), ["10.88.0.2", "10.88.0.3", "10.88.0.4"]);
        runtime.del("c0", &pods[0].path()).unwrap();
        assert_eq!(node.reserved(), ["10.88.0.3", "10.88.0.4"]);
        // And back: what this plugin made is the reference's.
        let runtime = runtime.with_plugins(&theirs);
        runtime.check("c1", &pods[1]).unwrap();
        runtime.check("c2", &pods[2]).unwrap();
        let fourth = runtime.add("c3", &pods[3]).unwrap();
        assert_eq!(address(&fourth).to_string(), "10.88.0.5");
        let known = [(&pods[1], &second), (&pods[2], &third), (&pods[3], &fourth)];
        all_reach_each_other(&node, &known);
        if node.conf["ipMasq"] == true {
            // The reference 1.1 misses its chain of iptables, after it has done everything else;
            // the runtime's next DEL succeeds.
            let error = runtime.del("c2", &pods[2].path()).unwrap_err();
            assert!(error["msg"].as_str().unwrap().contains("'CNI-"), "{error}");
        }
        runtime.del("c2", &pods[2].path()).unwrap();
        assert_eq!(pods[2].links(), ["lo"]);
        assert_eq!(node.reserved(), ["10.88.0.3", "10.88.0.5"]);
        // And once more here, where the agent ran on and missed both changes.
        let runtime = runtime.with_plugins(&ours);
        runtime.check("c3", &pods[3]).unwrap();
        let fifth = runtime.add("c4", &pods[4]).unwrap();
        assert_ne!(address(&fifth), address(&fourth));
        for (id, pod) in [("c1", &pods[1]), ("c3", &pods[3]), ("c4", &pods[4])] {
            runtime.del(id, &pod.path()).unwrap();
        }
    }
    assert!(node.reserved().is_empty());
}

#[test]
fn pods_of_both_live_together_through_a_switch_and_back() {
    switch(|_| ());
}

#[test]
fn masqueraded_pods_do_so_too() {
    switch(|conf| conf["ipMasq"] = json!(true));
}

#[test]
fn a_file_that_the_reference_writes_while_this_one_runs_is_respected() {
    let node = Node::new();
    let pods = [Namespace::new(), Namespace::new(), Namespace::new()];
    node.add("c0", &pods[0]).unwrap();
    let theirs = Runtime::new(&node.host, &[as_reference(&node.conf)]);
    theirs.add("c1", &pods[1]).unwrap();
    node.add("c2", &pods[2]).unwrap();
    assert_eq!(node.reserved(), ["10.88.0.2", "10.88.0.3", "10.88.0.4"]);
}
