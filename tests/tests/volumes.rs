//! Everything that a pod can mount, on the whole stack.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::json;
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::leftovers::Machine;
use swiftlet_tests::pods::{LIMIT, wait_gone, wait_ready};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::stack::{Stack, StackOptions};

/// A change in the API is seen in the pod within this time, the look of the pod included.
const UPDATE_LIMIT: Duration = Duration::from_secs(1);

/// What the pod does: it shows to the test what it sees, again and again.
const SCRIPT: &str = r"
set -e
cp /etc/hosts /out/hosts
cp /all/key /out/all.key; cp /all/password /out/all.password; cp /all/name /out/all.name
cp /secret/password /out/password
cp /memory-limit/memory /out/memory
cp /host/motd /out/motd
echo mine > /claimed/file
echo part > /logs/file
dd if=/dev/zero of=/fast/large bs=1M count=2 2> /dev/null || echo full > /out/fast
rm -f /fast/large
touch /conf/new 2> /dev/null || echo refused > /out/read-only
cp /var/run/secrets/kubernetes.io/serviceaccount/* /out/
while true; do
    cat /conf/key > /out/.conf; mv /out/.conf /out/conf
    cat /one-key > /out/.one; mv /out/.one /out/one
    cat /about/notes > /out/.notes; mv /out/.notes /out/notes
    test ! -e /claimed/late/word || cp /claimed/late/word /out/late
    sleep 0.05
done
";

fn objects(image: &str, dir: &Path) -> serde_json::Value {
    let (out, host, claimed) = (dir.join("out"), dir.join("host"), dir.join("claimed"));
    let projected = json!({"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "settings"}},
        {"secret": {"name": "login"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]});
    let about = json!({"items": [
        {"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
    ]});
    let memory = json!({"items": [{"path": "memory", "resourceFieldRef": {
        "containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}}]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "everything", "annotations": {"note": "first"}},
        "spec": {
            // With a grace period the API keeps the pod until the node has cleaned up.
            "terminationGracePeriodSeconds": 1,
            "hostAliases": [{"ip": "10.9.8.7", "hostnames": ["old.example", "older.example"]}],
            "containers": [{
                "name": "main", "image": image, "command": ["sh", "-c", SCRIPT],
                "resources": {"limits": {"memory": "64Mi"}},
                "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "volumeMounts": [
                    {"name": "out", "mountPath": "/out"},
                    {"name": "host", "mountPath": "/host", "readOnly": true},
                    {"name": "conf", "mountPath": "/conf"},
                    {"name": "conf", "mountPath": "/one-key", "subPath": "key"},
                    {"name": "secret", "mountPath": "/secret"},
                    {"name": "all", "mountPath": "/all"},
                    {"name": "about", "mountPath": "/about"},
                    {"name": "memory", "mountPath": "/memory-limit"},
                    {"name": "disk", "mountPath": "/logs", "subPathExpr": "of/$(POD)"},
                    {"name": "fast", "mountPath": "/fast"},
                    {"name": "claimed", "mountPath": "/claimed",
                        "mountPropagation": "HostToContainer"},
                ],
            }],
            "volumes": [
                {"name": "out", "hostPath": {"path": out, "type": "DirectoryOrCreate"}},
                {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
                {"name": "conf", "configMap": {"name": "settings"}},
                {"name": "secret", "secret": {"secretName": "login", "defaultMode": 0o400}},
                {"name": "all", "projected": projected},
                {"name": "about", "downwardAPI": about},
                {"name": "memory", "downwardAPI": memory},
                {"name": "disk", "emptyDir": {}},
                {"name": "fast", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "claimed", "persistentVolumeClaim": {"claimName": "mine"}},
            ],
        },
    });
    let size = json!({"storage": "1Gi"});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
            "data": {"key": "first"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "stringData": {"password": "hunter2"}},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": {
            "capacity": size, "accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
            "hostPath": {"path": claimed, "type": "DirectoryOrCreate"}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "by-hand",
                "resources": {"requests": size}}},
        pod,
    ]})
}

/// A disk of the node. What is mounted below it later is passed on to who asked for that: on many
/// machines the root file system is not.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf) -> Result<Self> {
        std::fs::create_dir(&at)?;
        let (disk, none) = (Self(at), None::<&str>);
        disk.mount_below("")?;
        mount(none, &disk.0, none, MsFlags::MS_SHARED, none)?;
        Ok(disk)
    }

    fn mount_below(&self, folder: &str) -> Result<()> {
        let (kind, at) = (Some("tmpfs"), self.0.join(folder));
        Ok(mount(kind, &at, kind, MsFlags::empty(), None::<&str>)?)
    }

    fn unmount(&self, folder: &str) -> Result<()> {
        Ok(umount2(&self.0.join(folder), MntFlags::MNT_DETACH)?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = self.unmount("") {
            eprintln!("{} not unmounted: {error:#}", self.0.display());
        }
    }
}

struct Seen(PathBuf);

impl Seen {
    fn read(&self, name: &str) -> Result<String> {
        std::fs::read_to_string(self.0.join(name)).with_context(|| format!("the pod's {name}"))
    }

    /// Waits until the pod shows it; answers how long that took.
    fn wait(&self, name: &str, text: &str) -> Result<Duration> {
        let start = Instant::now();
        wait_for(&format!("{name} is {text}"), LIMIT, || {
            (self.read(name).ok()?.trim() == text).then_some(())
        })?;
        Ok(start.elapsed())
    }
}

#[test]
fn a_pod_sees_all_kinds_of_volumes_and_their_changes_and_leaves_nothing() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let disk = Disk::mount(folder.path().join("claimed"))?;
    let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
    let kubectl = stack.kubectl()?;
    let options = stack.options().clone();
    std::fs::create_dir(folder.path().join("host"))?;
    std::fs::write(folder.path().join("host/motd"), "welcome")?;
    last_words(&kubectl, &options.busybox_image)?;
    let before = Machine::look(&options.dir, &options.cgroup_root);
    let manifest = objects(&options.busybox_image, folder.path());
    kubectl.apply(&manifest.to_string())?;
    wait_ready(&kubectl, 1).with_context(|| why(&kubectl, &options.dir))?;
    let seen = Seen(folder.path().join("out"));
    seen.wait("notes", "first")?;
    look(&kubectl, &seen, folder.path())?;
    changes(&kubectl, &seen)?;
    std::fs::create_dir(folder.path().join("claimed/late"))?;
    disk.mount_below("late")?;
    std::fs::write(folder.path().join("claimed/late/word"), "passed on")?;
    seen.wait("late", "passed on")?;
    disk.unmount("late")?;
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)?;
    let left = || Machine::look(&options.dir, &options.cgroup_root).since(&before);
    wait_for("nothing is left", LIMIT, || left().is_empty().then_some(()))
        .with_context(|| format!("left: {:?}", left()))?;
    assert_eq!(paths_below(&options.dir.join("node/pods"))?, "");
    // What is not the pod's stays.
    let kept = std::fs::read_to_string(folder.path().join("claimed/file"))?;
    assert_eq!(kept.trim(), "mine");
    Ok(())
}

fn paths_below(folder: &Path) -> Result<String> {
    let mut find = Command::new("find");
    let output = find.arg(folder).args(["-mindepth", "1"]).output()?;
    Ok(String::from_utf8(output.stdout)?)
}

/// What is known of a pod that does not become Ready.
fn why(kubectl: &Kubectl, dir: &Path) -> String {
    let said = |what: &str| {
        let output = kubectl.run(&["get", what, "-o", "yaml"]);
        output.unwrap_or_else(|error| error.to_string())
    };
    let claims = said("persistentvolumeclaims");
    let mut text = [said("pods"), said("events"), claims].join("\n");
    let logs = std::fs::read_dir(dir.join("logs/pods"))
        .into_iter()
        .flatten()
        .flatten();
    for pod in logs {
        let log = std::fs::read_to_string(pod.path().join("main/0.log"));
        text.push_str(&log.unwrap_or_default());
    }
    text
}

/// A container's last words are its message, wherever it writes them.
fn last_words(kubectl: &Kubectl, image: &str) -> Result<()> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ends"}, "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": image, "terminationMessagePath": "/tmp/words",
            "command": ["sh", "-c", "echo it was the disk > /tmp/words; exit 3"]}]}});
    kubectl.apply(&pod.to_string())?;
    wait_for("the last words", LIMIT, || {
        let pod = kubectl.json(&["get", "pod", "ends"]).ok()?;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        (ended["message"].as_str()?.trim() == "it was the disk").then_some(())
    })?;
    kubectl.run(&["delete", "pod", "ends", "--wait=false"])?;
    wait_gone(kubectl)
}

fn look(kubectl: &Kubectl, seen: &Seen, folder: &Path) -> Result<()> {
    for (name, text) in [
        ("all.key", "first"),
        ("all.password", "hunter2"),
        ("all.name", "everything"),
        ("password", "hunter2"),
        ("memory", "64"),
        ("motd", "welcome"),
        ("fast", "full"),
        ("read-only", "refused"),
        ("one", "first"),
        ("namespace", "default"),
    ] {
        assert_eq!(seen.read(name)?.trim(), text, "{name}");
    }
    let token = seen.read("token")?;
    assert_eq!(token.split('.').count(), 3, "a signed token: {token}");
    assert!(seen.read("ca.crt")?.contains("BEGIN CERTIFICATE"));
    let pod = kubectl.json(&["get", "pod", "everything"])?;
    let ip = pod["status"]["podIP"].as_str().context("an address")?;
    let hosts = seen.read("hosts")?;
    let end = format!(
        "{ip}\teverything\n\n# Entries added by HostAliases.\n\
         10.9.8.7\told.example\tolder.example\n"
    );
    assert!(
        hosts.starts_with("# Kubernetes-managed hosts file.\n"),
        "{hosts}"
    );
    assert!(hosts.ends_with(&end), "{hosts}");
    let uid = pod["metadata"]["uid"].as_str().context("a uid")?;
    let volumes = folder.join("s/node/pods").join(uid).join("volumes");
    let part = volumes.join("kubernetes.io~empty-dir/disk/of/everything/file");
    assert_eq!(std::fs::read_to_string(part)?.trim(), "part");
    let claimed = std::fs::read_to_string(folder.join("claimed/file"))?;
    assert_eq!(claimed.trim(), "mine");
    Ok(())
}

fn changes(kubectl: &Kubectl, seen: &Seen) -> Result<()> {
    let patch = r#"{"data": {"key": "second"}}"#;
    kubectl.run(&[
        "patch",
        "configmap",
        "settings",
        "--type=merge",
        "-p",
        patch,
    ])?;
    let took = seen.wait("conf", "second")?;
    ensure!(took < UPDATE_LIMIT, "a ConfigMap took {took:?}");
    kubectl.run(&[
        "annotate",
        "pod",
        "everything",
        "note=second",
        "--overwrite",
    ])?;
    let took = seen.wait("notes", "second")?;
    ensure!(took < UPDATE_LIMIT, "an annotation took {took:?}");
    // As documented: a part of a volume stays what it was.
    assert_eq!(seen.read("one")?.trim(), "first");
    Ok(())
}

/// A folder of the pod's own, in which one container mounts something and another one sees it.
fn shared_mounts(image: &str) -> serde_json::Value {
    let mounts = "mkdir -p /data/inner && mount -t tmpfs none /data/inner && \
                  echo shared > /data/inner/word; sleep 3600";
    let looks = "until cat /data/inner/word; do sleep 0.1; done; sleep 3600";
    let mount =
        |how: &str| json!([{"name": "data", "mountPath": "/data", "mountPropagation": how}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shares"}, "spec": {
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {"name": "mounts", "image": image, "command": ["sh", "-c", mounts],
                "securityContext": {"privileged": true}, "volumeMounts": mount("Bidirectional")},
            {"name": "looks", "image": image, "command": ["sh", "-c", looks],
                "readinessProbe": {"exec": {"command": ["test", "-e", "/data/inner/word"]},
                    "periodSeconds": 1},
                "volumeMounts": mount("HostToContainer")},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }})
}

#[test]
fn what_one_container_mounts_in_a_volume_another_one_sees_and_nothing_of_it_stays() -> Result<()> {
    let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
    let dir = folder.path().join("s");
    let nothing = Machine::look(&dir, "kubepods");
    let mut stack = Stack::start(StackOptions::new(&dir))?;
    let kubectl = stack.kubectl()?;
    let options = stack.options().clone();
    kubectl.apply(&shared_mounts(&options.busybox_image).to_string())?;
    wait_ready(&kubectl, 1).with_context(|| why(&kubectl, &options.dir))?;
    // A new start of the agent finds the folder as it is.
    let root = || -> Result<usize> {
        let table = std::fs::read_to_string("/proc/self/mounts")?;
        let node = format!(" {} ", options.dir.join("node").display());
        Ok(table.lines().filter(|line| line.contains(&node)).count())
    };
    let before = root()?;
    stack.kill_node()?;
    stack.start_node()?;
    wait_ready(&kubectl, 1)?;
    assert_eq!(root()?, before);
    assert!(before <= 1, "{before} mounts at one place");
    kubectl.run(&["delete", "pods", "--all", "--wait=false"])?;
    wait_gone(&kubectl)?;
    stack.remove()?;
    let left = Machine::look(&dir, &options.cgroup_root).since(&nothing);
    let mounts: Vec<_> = left
        .iter()
        .filter(|line| line.starts_with("mount "))
        .collect();
    assert!(mounts.is_empty(), "{mounts:?}");
    Ok(())
}
