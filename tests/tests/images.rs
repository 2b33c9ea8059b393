//! Images from a registry: policies, credentials, back-off, and one pull for all who wait.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use swiftlet_tests::kubectl::Kubectl;
use swiftlet_tests::pods::{LIMIT, is_ready, pod};
use swiftlet_tests::process::wait_for;
use swiftlet_tests::registry::{PASSWORD, Registry, USER};
use swiftlet_tests::stack::{Stack, StackOptions};

/// Pods that want the same image at once.
const TOGETHER: usize = 5;

/// A stack, and a folder beside it for registries. Fields are dropped in order.
struct Place {
    stack: Stack,
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("swl").tempdir()?;
        let stack = Stack::start(StackOptions::new(&folder.path().join("s")))?;
        Ok(Self { stack, folder })
    }

    /// Pulls of this image that the runtime was asked for.
    fn pulls(&self, image: &str) -> Result<usize> {
        let log = self.stack.options().dir.join("containerd/containerd.log");
        let text = std::fs::read_to_string(log)?;
        let asked = format!("PullImage \\\"{image}\\\"\"");
        Ok(text.lines().filter(|line| line.contains(&asked)).count())
    }
}

fn manifest(name: &str, image: &str, policy: &str, secrets: &[&str]) -> Value {
    let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "imagePullSecrets": secrets,
            "containers": [{
                "name": "main",
                "image": image,
                "imagePullPolicy": policy,
                "command": ["sleep", "3600"],
            }],
        },
    })
}

fn wait_for_ready(kubectl: &Kubectl, name: &str) -> Result<()> {
    wait_for(&format!("{name} is ready"), LIMIT, || {
        pod(kubectl, name).filter(is_ready).map(drop)
    })
}

/// Waits until the container waits for this reason; answers its message.
fn wait_for_reason(kubectl: &Kubectl, name: &str, reason: &str) -> Result<String> {
    wait_for(&format!("{name} waits: {reason}"), LIMIT, || {
        let pod = pod(kubectl, name)?;
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        (waiting["reason"] == reason).then(|| message.to_owned())
    })
}

/// Messages of the Events about a pod that have this reason.
fn events(kubectl: &Kubectl, pod: &str, reason: &str) -> Result<Vec<String>> {
    let all = kubectl.json(&["get", "events"])?;
    let all = all["items"].as_array().context("items")?;
    let mine = all
        .iter()
        .filter(|event| event["involvedObject"]["name"] == pod && event["reason"] == reason);
    Ok(mine
        .filter_map(|event| event["message"].as_str().map(str::to_owned))
        .collect())
}

fn wait_for_event(kubectl: &Kubectl, pod: &str, reason: &str) -> Result<String> {
    wait_for(&format!("{pod} has an Event {reason}"), LIMIT, || {
        events(kubectl, pod, reason).ok()?.into_iter().next()
    })
}

fn give_secret(kubectl: &Kubectl, name: &str, host: &str, password: &str) -> Result<()> {
    let server = format!("--docker-server={host}");
    let user = format!("--docker-username={USER}");
    let password = format!("--docker-password={password}");
    let words = [
        "create",
        "secret",
        "docker-registry",
        name,
        &server,
        &user,
        &password,
    ];
    kubectl.run(&words)?;
    Ok(())
}

#[test]
fn the_pull_policy_decides_and_a_missing_image_is_pulled_when_it_appears() -> Result<()> {
    let place = Place::new()?;
    let registry = Registry::open(&place.folder.path().join("r"))?;
    let (kubectl, socket) = (place.stack.kubectl()?, place.stack.runtime_socket());
    let busybox = &place.stack.options().busybox_image;
    let image = registry.push(&socket, busybox, "app:1")?;
    let apply = |name: &str, image: &str, policy: &str| {
        kubectl.apply(&manifest(name, image, policy, &[]).to_string())
    };

    apply("never", &image, "Never")?;
    let words = wait_for_reason(&kubectl, "never", "ErrImageNeverPull")?;
    assert!(
        words.contains("is not present with pull policy of Never"),
        "{words}"
    );
    assert_eq!(place.pulls(&image)?, 0);

    apply("first", &image, "IfNotPresent")?;
    wait_for_ready(&kubectl, "first")?;
    let told = wait_for_event(&kubectl, "first", "Pulled")?;
    assert!(
        told.starts_with(&format!("Successfully pulled image \"{image}\" in ")),
        "{told}"
    );
    assert!(told.contains(" including waiting). Image size: "), "{told}");
    apply("second", &image, "IfNotPresent")?;
    wait_for_ready(&kubectl, "second")?;
    assert_eq!(place.pulls(&image)?, 1);
    apply("always", &image, "Always")?;
    wait_for_ready(&kubectl, "always")?;
    assert_eq!(place.pulls(&image)?, 2);

    let late = registry.image("late:1");
    apply("late", &late, "IfNotPresent")?;
    let words = wait_for_reason(&kubectl, "late", "ImagePullBackOff")?;
    let begin = format!("Back-off pulling image \"{late}\": ErrImagePull: ");
    assert!(
        words.starts_with(&begin) && words.contains("not found"),
        "{words}"
    );
    let failed = wait_for_event(&kubectl, "late", "Failed")?;
    assert!(
        failed.contains(&late) || failed == "Error: ErrImagePull",
        "{failed}"
    );
    wait_for_event(&kubectl, "late", "BackOff")?;
    registry.push(&socket, busybox, "late:1")?;
    wait_for_ready(&kubectl, "late")?;

    apply("bad", "Not-An-Image", "Always")?;
    wait_for_reason(&kubectl, "bad", "InvalidImageName")?;
    Ok(())
}

#[test]
fn a_guarded_registry_serves_pods_with_the_right_pull_secret() -> Result<()> {
    let place = Place::new()?;
    let registry = Registry::guarded(&place.folder.path().join("r"))?;
    let (kubectl, socket) = (place.stack.kubectl()?, place.stack.runtime_socket());
    let image = registry.push(&socket, &place.stack.options().busybox_image, "app:1")?;
    give_secret(&kubectl, "right", &registry.host(), PASSWORD)?;
    give_secret(&kubectl, "wrong", &registry.host(), "guessed")?;
    give_secret(&kubectl, "other", "registry.example.com", PASSWORD)?;
    for (name, secrets) in [
        ("none", &[][..]),
        ("wrong", &["wrong"]),
        ("other", &["other"]),
        ("right", &["right"]),
        ("both", &["wrong", "right"]),
        ("missing", &["missing"]),
    ] {
        kubectl.apply(&manifest(name, &image, "Always", secrets).to_string())?;
    }
    for name in ["right", "both"] {
        wait_for_ready(&kubectl, name)?;
    }
    for name in ["none", "wrong", "other", "missing"] {
        let words = wait_for_reason(&kubectl, name, "ImagePullBackOff")?;
        assert!(words.contains("ErrImagePull"), "{name}: {words}");
    }
    let told = wait_for_event(&kubectl, "missing", "FailedToRetrieveImagePullSecret")?;
    assert_eq!(
        told,
        "Unable to retrieve some image pull secrets (missing); attempting to pull the image may \
         not succeed."
    );
    // The Secret comes: the pod does not wait for the end of its back-off.
    give_secret(&kubectl, "missing", &registry.host(), PASSWORD)?;
    wait_for_ready(&kubectl, "missing")?;
    // The node itself has credentials now: of all pods, after their own.
    let entry = json!({"username": USER, "password": PASSWORD});
    let config = json!({"auths": {registry.host(): entry}});
    let file = place.stack.options().dir.join("node/config.json");
    std::fs::write(file, config.to_string())?;
    let unknown = [("bare", &[][..]), ("also-wrong", &["wrong"])];
    for (name, secrets) in unknown {
        kubectl.apply(&manifest(name, &image, "Always", secrets).to_string())?;
        wait_for_ready(&kubectl, name)?;
    }
    let log = std::fs::read_to_string(place.stack.node_log())?;
    assert!(
        !log.contains(PASSWORD) && !log.contains("guessed"),
        "a password was logged"
    );
    Ok(())
}

#[test]
fn pods_that_want_one_image_at_once_make_one_pull() -> Result<()> {
    let place = Place::new()?;
    let registry = Registry::open(&place.folder.path().join("r"))?;
    let (kubectl, socket) = (place.stack.kubectl()?, place.stack.runtime_socket());
    let image = registry.push(&socket, &place.stack.options().busybox_image, "app:1")?;
    let name = |number: usize| format!("p{number}");
    let manifest = |number| manifest(&name(number), &image, "IfNotPresent", &[]).to_string();
    let all: Vec<String> = (0..TOGETHER).map(manifest).collect();
    kubectl.apply(&all.join("\n"))?;
    for number in 0..TOGETHER {
        wait_for_ready(&kubectl, &name(number))?;
    }
    assert_eq!(place.pulls(&image)?, 1);
    Ok(())
}

#[test]
fn an_image_of_root_does_not_run_where_root_is_forbidden() -> Result<()> {
    let place = Place::new()?;
    let kubectl = place.stack.kubectl()?;
    let busybox = &place.stack.options().busybox_image;
    let mut root = manifest("root", busybox, "IfNotPresent", &[]);
    root["spec"]["securityContext"] = json!({"runAsNonRoot": true});
    kubectl.apply(&root.to_string())?;
    let words = wait_for_reason(&kubectl, "root", "CreateContainerConfigError")?;
    let expected = "container has runAsNonRoot and image will run as root (pod: \"root_default(";
    assert!(words.starts_with(expected), "{words}");
    let mut user = manifest("user", busybox, "IfNotPresent", &[]);
    user["spec"]["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000});
    kubectl.apply(&user.to_string())?;
    wait_for_ready(&kubectl, "user")
}
