//! POST of a service account's `token`: `authentication.k8s.io/v1` `TokenRequest`
//! (Kubernetes: `pkg/registry/core/serviceaccount/storage/token.go`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::TokenRequest;
use serde::Deserialize;
use serde_json::{Value, json};
use swiftlet_client::api::{ApiError, ResourceName, resources};

use super::Written;
use super::modify;
use crate::api::ApiServer;
use crate::encode::{self, metadata_mut};
use crate::error;
use crate::registry::FieldError;
use crate::route::{self, Target};
use crate::token::{Bound, Claims, ISSUER, KubernetesClaims};
use crate::{decode, strategy};

/// How long a token lives that says nothing.
const EXPIRATION_DEFAULT_S: i64 = 3600;
/// Shortest life of a token.
const EXPIRATION_MIN_S: i64 = 600;
/// Longest life of a token.
const EXPIRATION_MAX_S: i64 = 1 << 32;
/// The life that the token volume of the service account admission asks for. Clients that do not
/// read their token again are warned then, not cut off (`WarnOnlyBoundTokenExpirationPeriod`).
const WARN_ONLY_S: i64 = 3607;
/// When those clients are cut off (`ExpirationExtensionSeconds`).
const EXTENDED_S: i64 = 365 * 24 * 3600;

/// What the token will be bound to.
#[derive(Default)]
struct Binding {
    pod: Option<Bound>,
    node: Option<Bound>,
    secret: Option<Bound>,
}

/// The parts of an object that tokens name; the rest is skipped, not decoded: a node with its
/// images is large, and pods wait for their tokens.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Bound,
    spec: PodSpec,
}

/// The parts of a pod's `spec` that matter here; other kinds have none of them.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    service_account_name: Option<String>,
    node_name: Option<String>,
}

impl Named {
    fn bound(self) -> Bound {
        self.metadata
    }
}

/// Makes a token for a service account; nothing is stored.
pub(crate) fn create(
    api: &ApiServer,
    target: &Target,
    mut body: Value,
) -> Result<Written, ApiError> {
    decode::expect_kind(&mut body, "authentication.k8s.io/v1", "TokenRequest")?;
    // Typed clients send an empty one, whose time is null.
    if let Some(members) = body.as_object_mut() {
        members.remove("status");
    }
    let mut request = strategy::decode::<TokenRequest>(&body)
        .map_err(|why| {
            error::bad_request(format!(
                "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: {why}"
            ))
        })?
        .object;
    modify::check_namespace(target, metadata_mut(&mut request))?;
    let account: Named = find(
        api,
        &resources::SERVICE_ACCOUNTS,
        &target.namespace,
        &target.name,
    )?;
    let now = Timestamp::now();
    complete(target, &mut request, now);
    check_expiration(&request)?;
    let binding = match request.pointer("/spec/boundObjectRef") {
        Some(reference) if reference.is_object() => bind(api, target, reference)?,
        _ => Binding::default(),
    };
    let claims = claims(target, account.bound(), &request, binding, now);
    let key = api
        .signing_key()
        .ok_or_else(|| error::internal("this server has no key for service account tokens"))?;
    let token = key.sign(&claims);
    let token = token.ok_or_else(|| error::internal("the token cannot be signed"))?;
    let ends = now
        .checked_add(SignedDuration::from_secs(expiration_s(&request)))
        .map_err(error::internal)?;
    request["status"] = json!({
        "token": token,
        "expirationTimestamp": super::time_text(ends),
    });
    Ok(Written {
        object: encode::encode(&request),
        warnings: Vec::new(),
    })
}

fn complete(target: &Target, request: &mut Value, now: Timestamp) {
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    if !spec["expirationSeconds"].is_number() {
        spec["expirationSeconds"] = EXPIRATION_DEFAULT_S.into();
    }
    let metadata = metadata_mut(request);
    metadata.insert("name".into(), target.name.as_str().into());
    metadata.insert("namespace".into(), target.namespace.as_str().into());
    metadata.insert("creationTimestamp".into(), super::time_text(now).into());
}

fn expiration_s(request: &Value) -> i64 {
    request["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or(EXPIRATION_DEFAULT_S)
}

fn check_expiration(request: &Value) -> Result<(), ApiError> {
    let seconds = expiration_s(request);
    let detail = if seconds < EXPIRATION_MIN_S {
        "may not specify a duration less than 10 minutes"
    } else if seconds > EXPIRATION_MAX_S {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let wrong = FieldError::invalid("spec.expirationSeconds", seconds.into(), detail);
    Err(error::invalid_kind(
        "authentication.k8s.io",
        "TokenRequest",
        "",
        &[wrong],
    ))
}

/// Looks up the object that the token shall end with.
fn bind(api: &ApiServer, target: &Target, reference: &Value) -> Result<Binding, ApiError> {
    let text = |key: &str| reference[key].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (group, version) = match text("apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text("apiVersion")),
    };
    let namespace = target.namespace.as_str();
    let mut binding = Binding::default();
    let uid = match (group, kind) {
        ("", "Pod") => {
            let pod = find(api, &resources::PODS, namespace, name)?;
            if pod.spec.service_account_name.as_ref() != Some(&target.name) {
                return Err(error::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different \
                     serviceaccount name.",
                    target.name
                )));
            }
            binding.node = node_of(api, pod.spec.node_name.as_deref().unwrap_or_default());
            binding.pod.insert(pod.bound()).uid.clone()
        }
        ("", "Node") => {
            let node = find(api, &resources::NODES, "", name)?;
            binding.node.insert(node.bound()).uid.clone()
        }
        ("", "Secret") => {
            let secret = find(api, &resources::SECRETS, namespace, name)?;
            binding.secret.insert(secret.bound()).uid.clone()
        }
        _ => {
            return Err(error::bad_request(format!(
                "cannot bind token to object of type {group}/{version}, Kind={kind}"
            )));
        }
    };
    let wanted = text("uid");
    if wanted.is_empty() || wanted == uid {
        return Ok(binding);
    }
    let why = format!(
        "the UID in the bound object reference ({wanted}) does not match the UID in record. The \
         object might have been deleted and then recreated"
    );
    Err(error::conflict_of(kind, name, &why))
}

fn find(
    api: &ApiServer,
    resource: &ResourceName,
    namespace: &str,
    name: &str,
) -> Result<Named, ApiError> {
    let target = Target {
        resource: route::resource(resource).ok_or_else(error::unknown_path)?,
        namespace: namespace.into(),
        name: name.into(),
        subresource: "",
    };
    let entry = api.find(&target)?;
    serde_json::from_slice(&entry.value).map_err(error::internal)
}

/// The pod's node; by its name alone when there is no such object.
fn node_of(api: &ApiServer, name: &str) -> Option<Bound> {
    if name.is_empty() {
        return None;
    }
    let found = find(api, &resources::NODES, "", name);
    Some(found.map_or_else(
        |_| Bound {
            name: name.into(),
            uid: String::new(),
        },
        Named::bound,
    ))
}

fn claims(
    target: &Target,
    account: Bound,
    request: &Value,
    binding: Binding,
    now: Timestamp,
) -> Claims {
    let asked_s = expiration_s(request);
    let aud: Vec<String> = strategy::list_at(request, "/spec/audiences")
        .iter()
        .filter_map(|one| one.as_str().map(Into::into))
        .collect();
    let is_extended =
        binding.pod.is_some() && asked_s == WARN_ONLY_S && aud.iter().all(|one| one == ISSUER);
    let now_s = now.as_second();
    let life_s = if is_extended { EXTENDED_S } else { asked_s };
    Claims {
        aud,
        exp: now_s.saturating_add(life_s),
        iat: now_s,
        iss: ISSUER.into(),
        jti: uuid::Uuid::new_v4().to_string(),
        kubernetes: KubernetesClaims {
            namespace: target.namespace.clone(),
            node: binding.node,
            pod: binding.pod,
            secret: binding.secret,
            serviceaccount: account,
            warnafter: is_extended.then(|| now_s.saturating_add(asked_s)),
        },
        nbf: now_s,
        sub: format!("system:serviceaccount:{}:{}", target.namespace, target.name),
    }
}
