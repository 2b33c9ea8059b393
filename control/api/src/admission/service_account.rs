//! Pods have an account, and its token (Kubernetes: `plugin/pkg/admission/serviceaccount`).

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, resources};

use super::{Admission, is_mirror};
use crate::strategy::{list_at, text_at};
use crate::verb::create::suffix;

/// The account of pods that name none.
const DEFAULT_ACCOUNT: &str = "default";
/// How often the default account is looked for: in a new namespace it takes a moment to appear.
const ATTEMPTS_MAX: usize = 10;
/// The pause between two looks.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(100);
/// Where the token lies.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Begin of the volume's name.
const VOLUME_PREFIX: &str = "kube-api-access-";
/// How long the token in the volume lives.
const TOKEN_EXPIRATION_S: i64 = 3607;
/// Mode of the files in the volume: 0644.
const FILE_MODE: i64 = 0o644;

/// What matters of an account here.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Account {
    automount_service_account_token: Option<bool>,
    image_pull_secrets: Vec<Value>,
}

/// Names the pod's account, and mounts its token where nothing speaks against it.
pub(super) async fn admit(admission: Admission<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if is_mirror(pod) {
        return check_mirror(admission, pod);
    }
    if text_at(pod, "/spec/serviceAccountName").is_empty() {
        pod["spec"]["serviceAccountName"] = DEFAULT_ACCOUNT.into();
        pod["spec"]["serviceAccount"] = DEFAULT_ACCOUNT.into();
    }
    if !admission.api.options().service_account_admission {
        return Ok(());
    }
    let account = find(admission, text_at(pod, "/spec/serviceAccountName")).await?;
    let automount = pod["spec"]["automountServiceAccountToken"]
        .as_bool()
        .or(account.automount_service_account_token)
        .unwrap_or(true);
    if automount {
        mount_token(pod);
    }
    if list_at(pod, "/spec/imagePullSecrets").is_empty() && !account.image_pull_secrets.is_empty() {
        pod["spec"]["imagePullSecrets"] = account.image_pull_secrets.into();
    }
    Ok(())
}

async fn find(admission: Admission<'_>, name: &str) -> Result<Account, ApiError> {
    let namespace = admission.target.namespace.as_str();
    let attempts = if name == DEFAULT_ACCOUNT {
        ATTEMPTS_MAX
    } else {
        1
    };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(ATTEMPT_PAUSE).await;
        }
        if let Some(account) = admission.find((&resources::SERVICE_ACCOUNTS, namespace, name)) {
            return Ok(account);
        }
    }
    Err(admission.refuse(&format!(
        "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
    )))
}

/// A mirror pod belongs to its node and uses nothing of the cluster: what the pods of a node name
/// the node may read.
fn check_mirror(admission: Admission<'_>, pod: &Value) -> Result<(), ApiError> {
    if !text_at(pod, "/spec/serviceAccountName").is_empty() {
        return Err(admission.refuse("a mirror pod may not reference service accounts"));
    }
    let volumes = || list_at(pod, "/spec/volumes").iter();
    let names = |kinds: [&str; 4]| {
        let [volume, projected, from, key] = kinds;
        volumes().any(|one| names_in_volume(one, volume, projected))
            || ["/spec/initContainers", "/spec/containers"]
                .into_iter()
                .flat_map(|list| list_at(pod, list))
                .any(|container| names_in_container(container, from, key))
    };
    let pulls = !list_at(pod, "/spec/imagePullSecrets").is_empty();
    let secrets = ["secret", "secret", "secretRef", "secretKeyRef"];
    if pulls || names(secrets) {
        return Err(admission.refuse("a mirror pod may not reference secrets"));
    }
    if names(["configMap", "configMap", "configMapRef", "configMapKeyRef"]) {
        return Err(admission.refuse("a mirror pod may not reference configmaps"));
    }
    if volumes().any(|one| names_in_volume(one, "", "serviceAccountToken")) {
        let why = "a mirror pod may not use ServiceAccountToken volume projections";
        return Err(admission.refuse(why));
    }
    let is_claim =
        |one: &Value| one["persistentVolumeClaim"].is_object() || one["ephemeral"].is_object();
    if volumes().any(is_claim) {
        return Err(admission.refuse("a mirror pod may not reference persistentvolumeclaims"));
    }
    Ok(())
}

/// Whether a volume has this kind, or projects a source of that one.
fn names_in_volume(volume: &Value, kind: &str, projected: &str) -> bool {
    let mut sources = list_at(volume, "/projected/sources").iter();
    volume[kind].is_object() || sources.any(|source| source[projected].is_object())
}

/// Whether a container takes variables `from` an object, or one variable from a `key` of it.
fn names_in_container(container: &Value, from: &str, key: &str) -> bool {
    let mut variables = list_at(container, "/env").iter();
    let mut sources = list_at(container, "/envFrom").iter();
    variables.any(|one| one["valueFrom"][key].is_object())
        || sources.any(|one| one[from].is_object())
}

/// Adds the token's volume, and its mount to every container that has nothing at that place.
fn mount_token(pod: &mut Value) {
    let existing = list_at(pod, "/spec/volumes")
        .iter()
        .filter_map(|volume| volume["name"].as_str())
        .find(|name| name.starts_with(VOLUME_PREFIX))
        .map(str::to_owned);
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", suffix()));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            mounted |= mount_into(container, &name);
        }
    }
    if mounted && !has_volume {
        let volume = token_volume(&name);
        match pod["spec"].get_mut("volumes").and_then(Value::as_array_mut) {
            Some(volumes) => volumes.push(volume),
            None => pod["spec"]["volumes"] = json!([volume]),
        }
    }
}

/// Answers whether the mount is new.
fn mount_into(container: &mut Value, name: &str) -> bool {
    let Some(container) = container.as_object_mut() else {
        return false;
    };
    let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
    if mounts.is_null() {
        *mounts = json!([]);
    }
    let Some(mounts) = mounts.as_array_mut() else {
        return false;
    };
    if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
        return false;
    }
    mounts.push(json!({ "name": name, "readOnly": true, "mountPath": MOUNT_PATH }));
    true
}

fn token_volume(name: &str) -> Value {
    let certificate = json!([{ "key": "ca.crt", "path": "ca.crt" }]);
    let namespace = json!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" });
    json!({
        "name": name,
        "projected": {
            "sources": [
                { "serviceAccountToken": {
                    "expirationSeconds": TOKEN_EXPIRATION_S,
                    "path": "token",
                } },
                { "configMap": { "name": "kube-root-ca.crt", "items": certificate } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": namespace }] } },
            ],
            "defaultMode": FILE_MODE,
        },
    })
}
