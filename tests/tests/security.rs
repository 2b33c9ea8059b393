//! What containers see of their own rights, names and namespaces, on the whole stack.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{LIMIT, wait_gone};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// Prints what a process may do, as `name: value` lines.
const RIGHTS: &str = "what='^(Uid|Gid|Groups|CapEff|CapBnd|NoNewPrivs|Seccomp):'; \
                      grep -E \"$what\" /proc/self/status; \
                      touch /probe 2>/dev/null && echo 'Root: writable' || echo 'Root: read-only'";
/// Prints the variables of Services.
const SERVICES: &str = "echo \"Api: $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT_HTTPS\"; \
                        echo \"Db: $DB_SERVICE_HOST $DB_SERVICE_PORT $DB_PORT\"";
/// Bits of capabilities (capabilities(7)).
const NET_BIND_SERVICE: u64 = 1 << 10;
const SYS_ADMIN: u64 = 1 << 21;
const NET_RAW: u64 = 1 << 13;

fn pod(name: &str, spec: &Value, script: &str, image: &str) -> Value {
    let mut all = json!({
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": image, "command": ["sh", "-c", script]}],
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        // `main` are fields of the container.
        if field == "main" {
            for (field, value) in value.as_object().into_iter().flatten() {
                all["containers"][0][field] = value.clone();
            }
        } else {
            all[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": all})
}

/// Two containers: the second is seen by what it runs, and ended by the first.
fn sharers(image: &str) -> Value {
    json!([
        {"name": "main", "image": image, "command": ["sh", "-c",
            "until pidof tail; do sleep 0.1; done; echo 'Sees: the other'; \
             echo Comm: $(cat /proc/1/comm); kill -9 $(pidof tail)"]},
        {"name": "other", "image": image, "command": ["tail", "-f", "/dev/null"]},
    ])
}

/// Pods that run to their end, with what each prints.
fn observers(image: &str) -> Vec<Value> {
    let dns = json!({"nameservers": ["192.0.2.53"], "searches": ["one.example", "two.example"],
                     "options": [{"name": "ndots", "value": "3"}, {"name": "edns0"}]});
    vec![
        pod(
            "plain",
            &json!({}),
            &format!("{RIGHTS}; echo Host: $(hostname); {SERVICES}"),
            image,
        ),
        pod(
            "unlinked",
            &json!({"enableServiceLinks": false}),
            SERVICES,
            image,
        ),
        pod(
            "confined",
            &json!({
                "securityContext": {"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 4000,
                    "supplementalGroups": [3000], "seccompProfile": {"type": "RuntimeDefault"}},
                "main": {"securityContext": {"allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}},
            }),
            RIGHTS,
            image,
        ),
        pod(
            "privileged",
            &json!({"main": {"securityContext": {"privileged": true}}}),
            RIGHTS,
            image,
        ),
        pod(
            "named",
            &json!({"hostname": "db", "subdomain": "tier", "setHostnameAsFQDN": true,
                    "dnsPolicy": "None", "dnsConfig": dns}),
            "echo Host: $(hostname); while read -r line; do echo \"Dns: $line\"; done \
             < /etc/resolv.conf",
            image,
        ),
        pod(
            "tuned",
            &json!({"securityContext": {"sysctls":
                [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "81"}]}}),
            "echo Start: $(cat /proc/sys/net/ipv4/ip_unprivileged_port_start)",
            image,
        ),
        pod(
            "hosts",
            &json!({"hostPID": true, "hostIPC": true, "hostNetwork": true}),
            "for kind in pid ipc net; do echo $kind: $(readlink /proc/self/ns/$kind); done; \
             echo Host: $(hostname)",
            image,
        ),
        pod(
            "shared",
            &json!({"shareProcessNamespace": true, "containers": sharers(image)}),
            "",
            image,
        ),
        pod(
            "unmasked",
            &json!({"main": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
            &format!("{RIGHTS}; echo Keys: $(wc -c < /proc/timer_list 2>/dev/null)"),
            image,
        ),
    ]
}

/// Pods that are refused, with the reason and a part of the message.
fn refused(image: &str) -> Vec<(Value, &'static str, &'static str)> {
    let sysctl = json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}});
    let armor = json!({"securityContext": {"appArmorProfile":
        {"type": "Localhost", "localhostProfile": "mine"}}});
    vec![
        (
            pod("forbidden", &sysctl, "", image),
            "SysctlForbidden",
            "forbidden sysctl: \"kernel.msgmax\" not allowlisted",
        ),
        (
            pod("armored", &armor, "", image),
            "AppArmor",
            "Cannot enforce AppArmor: AppArmor is not enabled on the host",
        ),
        (
            pod("mapped", &json!({"hostUsers": false}), "", image),
            "UnexpectedAdmissionError",
            "spec.hostUsers: false",
        ),
    ]
}

/// What the container has printed, by the word before the colon.
fn printed(logs: &Path, pod: &Value, container: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let meta = &pod["metadata"];
    let part = |name: &str| meta[name].as_str().unwrap_or_default().to_owned();
    let folder = format!("{}_{}_{}", part("namespace"), part("name"), part("uid"));
    let path = logs.join(folder).join(container).join("0.log");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for line in text.lines() {
        // Time, stream, and whether the line is whole stand before it.
        let line = line.splitn(4, ' ').nth(3).unwrap_or_default();
        let (word, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        all.entry(word.to_owned()).or_default().push(value);
    }
    Ok(all)
}

fn capabilities(seen: &BTreeMap<String, Vec<String>>, word: &str) -> u64 {
    u64::from_str_radix(&seen[word][0], 16).expect("hexadecimal")
}

fn ended(kubectl: &Kubectl, name: &str) -> Result<Value> {
    wait_for(&format!("{name} ends"), LIMIT, || {
        let pod = kubectl.json(&["get", "pod", name]).ok()?;
        let phase = pod["status"]["phase"].as_str()?;
        ["Succeeded", "Failed"].contains(&phase).then_some(pod)
    })
}

#[test]
fn containers_have_the_rights_names_and_namespaces_that_their_pods_say() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    let (observers, refused) = (observers(image), refused(image));
    let all = observers.iter().chain(refused.iter().map(|(pod, ..)| pod));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all.collect::<Vec<_>>()});
    kubectl.apply(&service().to_string())?;
    kubectl.apply(&list.to_string())?;
    for (pod, reason, message) in &refused {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let status = &ended(&kubectl, name)?["status"];
        assert_eq!(status["reason"], *reason, "{status}");
        let said = status["message"].as_str().unwrap_or_default();
        assert!(said.contains(message), "{said}");
    }
    let mut seen = BTreeMap::new();
    for pod in &observers {
        let name = pod["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let pod = wait_for(&format!("{name}'s first container ends"), LIMIT, || {
            let pod = kubectl.json(&["get", "pod", &name]).ok()?;
            let all = pod["status"]["containerStatuses"].as_array()?;
            let main = all.iter().find(|one| one["name"] == "main")?;
            main["state"]["terminated"]
                .is_object()
                .then_some(pod.clone())
        })?;
        seen.insert(
            name,
            printed(&stack.options().dir.join("logs/pods"), &pod, "main")?,
        );
    }
    rights(&seen);
    services(&kubectl, &seen)?;
    listed(&kubectl, &stack.options().node_name)?;
    names(&seen, &stack.options().node_name);
    namespaces(&seen)?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

type Seen = BTreeMap<String, BTreeMap<String, Vec<String>>>;

fn rights(seen: &Seen) {
    let plain = &seen["plain"];
    assert_eq!(plain["Uid"], ["0 0 0 0"]);
    assert_eq!(plain["NoNewPrivs"], ["0"]);
    assert_eq!(plain["Seccomp"], ["0"], "kubelet's default is no filter");
    assert_eq!(plain["Root"], ["writable"]);
    let effective = capabilities(plain, "CapEff");
    assert!(
        effective & NET_RAW != 0 && effective & SYS_ADMIN == 0,
        "{effective:x}"
    );
    let confined = &seen["confined"];
    assert_eq!(confined["Uid"], ["1000 1000 1000 1000"]);
    assert_eq!(confined["Gid"], ["2000 2000 2000 2000"]);
    let mut groups: Vec<_> = confined["Groups"][0].split(' ').collect();
    groups.sort_unstable();
    groups.retain(|group| *group != "2000");
    assert_eq!(groups, ["3000", "4000"]);
    assert_eq!(capabilities(confined, "CapBnd"), NET_BIND_SERVICE);
    assert_eq!(confined["NoNewPrivs"], ["1"]);
    assert_eq!(confined["Seccomp"], ["2"]);
    assert_eq!(confined["Root"], ["read-only"]);
    let privileged = &seen["privileged"];
    assert!(capabilities(privileged, "CapEff") & SYS_ADMIN != 0);
    assert_eq!(privileged["Seccomp"], ["0"]);
    let unmasked = &seen["unmasked"];
    assert_eq!(unmasked["Seccomp"], ["0"]);
    assert_eq!(unmasked["Keys"], ["0"], "the kernel's timers are hidden");
    assert_eq!(seen["tuned"]["Start"], ["81"]);
}

fn service() -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
           "spec": {"selector": {"app": "db"}, "ports": [{"port": 5432}]}})
}

fn services(kubectl: &Kubectl, seen: &Seen) -> Result<()> {
    let address = |name: &str| -> Result<String> {
        let service = kubectl.json(&["get", "service", name])?;
        let address = service["spec"]["clusterIP"].as_str();
        Ok(address.context("an address")?.to_owned())
    };
    let (api, db) = (address("kubernetes")?, address("db")?);
    let api = [format!("{api}:443")];
    assert_eq!(seen["plain"]["Api"], api);
    assert_eq!(seen["plain"]["Db"], [format!("{db} 5432 tcp://{db}:5432")]);
    assert_eq!(seen["unlinked"]["Api"], api, "every pod is told of the API");
    assert_eq!(seen["unlinked"]["Db"], [""]);
    Ok(())
}

/// What people see of these pods.
fn listed(kubectl: &Kubectl, node: &str) -> Result<()> {
    let table = kubectl.run(&["get", "pods", "-o", "wide", "--no-headers"])?;
    let row = |name: &str| -> Result<Vec<&str>> {
        let mut rows = table.lines().map(|row| row.split_whitespace().collect());
        let row = rows.find(|row: &Vec<_>| row.first() == Some(&name));
        row.with_context(|| format!("{name} in {table}"))
    };
    let address = |name: &str| -> Result<String> {
        let pod = kubectl.json(&["get", "pod", name])?;
        let address = pod["status"]["podIP"].as_str();
        Ok(address.unwrap_or("<none>").to_owned())
    };
    // Name, containers, status, restarts, age, address, node.
    for (name, status) in [
        ("plain", "Completed"),
        ("hosts", "Completed"),
        ("forbidden", "SysctlForbidden"),
        ("armored", "AppArmor"),
    ] {
        let row = row(name)?;
        let told = [row[1], row[2], row[3], row[5], row[6]];
        assert_eq!(told, ["0/1", status, "0", &address(name)?, node], "{row:?}");
    }
    assert_ne!(address("plain")?, "<none>");
    Ok(())
}

fn names(seen: &Seen, node: &str) {
    assert_eq!(seen["plain"]["Host"], ["plain"]);
    let named = &seen["named"];
    assert!(
        named["Host"][0].starts_with("db.tier.default.svc"),
        "{named:?}"
    );
    assert_eq!(
        named["Dns"],
        [
            "search one.example two.example",
            "nameserver 192.0.2.53",
            "options ndots:3 edns0"
        ]
    );
    let host = nix::unistd::gethostname().expect("a name");
    let host = host.to_string_lossy();
    assert_eq!(seen["hosts"]["Host"], [&*host], "{node} runs on {host}");
}

fn namespaces(seen: &Seen) -> Result<()> {
    for kind in ["pid", "ipc", "net"] {
        let own = std::fs::read_link(format!("/proc/self/ns/{kind}"))?;
        // The link's text has a colon too.
        let inode = own.to_string_lossy().replace(':', " ");
        let theirs = seen["hosts"][kind][0].replace(':', " ");
        assert_eq!(theirs, inode);
    }
    let shared = &seen["shared"];
    assert_eq!(shared["Sees"], ["the other"]);
    assert_ne!(
        shared["Comm"],
        ["sh"],
        "process 1 is the pod's, not the container's"
    );
    Ok(())
}

#[test]
fn what_keeps_a_pod_from_starting_is_told_and_tried_again() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let image = &stack.options().busybox_image;
    let handler = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
                         "metadata": {"name": "other"}, "handler": "not-configured"});
    let class = json!({"runtimeClassName": "other"});
    let profile = json!({"securityContext": {"seccompProfile":
        {"type": "Localhost", "localhostProfile": "late.json"}}});
    let long = json!({"hostname": "a".repeat(40), "subdomain": "b".repeat(40),
                      "setHostnameAsFQDN": true});
    let all = [
        handler,
        pod("classless", &class, "", image),
        pod(
            "filtered",
            &profile,
            "grep Seccomp: /proc/self/status",
            image,
        ),
        pod("long", &long, "", image),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all});
    kubectl.apply(&list.to_string())?;
    for (name, words) in [
        // The runtime was asked for the class's handler.
        ("classless", "\"not-configured\""),
        ("long", "is too long (64 characters is the max"),
    ] {
        event(&kubectl, name, "FailedCreatePodSandBox", words)?;
    }
    wait_for("the profile is missed", LIMIT, || {
        let pod = kubectl.json(&["get", "pod", "filtered"]).ok()?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let said = waiting["message"].as_str()?;
        (waiting["reason"] == "CreateContainerError" && said.contains("late.json")).then_some(())
    })?;
    // An empty profile that lets everything through.
    let profiles = stack.options().dir.join("node/seccomp");
    std::fs::create_dir_all(&profiles)?;
    std::fs::write(
        profiles.join("late.json"),
        r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#,
    )?;
    let pod = ended(&kubectl, "filtered")?;
    assert_eq!(pod["status"]["phase"], "Succeeded", "{pod}");
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)
}

fn event(kubectl: &Kubectl, pod: &str, reason: &str, words: &str) -> Result<()> {
    wait_for(&format!("{pod} is told {words}"), LIMIT, || {
        let events = kubectl.json(&["get", "events"]).ok()?;
        let told = events["items"].as_array()?.iter().any(|event| {
            event["involvedObject"]["name"] == pod
                && event["reason"] == reason
                && event["message"]
                    .as_str()
                    .is_some_and(|said| said.contains(words))
        });
        told.then_some(())
    })
}
