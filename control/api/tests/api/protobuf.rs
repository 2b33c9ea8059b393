//! Bodies in protobuf, as kubectl sends them from version 1.32 on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use http::Method;
use serde_json::{Value, json};
use swiftlet_client::api::{ObjectName, ResourceName, resources};

use crate::client::{Call, get, json_of, post_protobuf};
use crate::kubectl::{self, Kubectl};
use crate::support::{Outside, outside};

/// What is made by kubectl and then compared.
const OBJECTS: [(ResourceName, &str); 9] = [
    (resources::NAMESPACES, "demo"),
    (resources::CONFIG_MAPS, "cm"),
    (resources::SECRETS, "s"),
    (resources::SERVICE_ACCOUNTS, "sa"),
    (resources::DEPLOYMENTS, "none"),
    (resources::DEPLOYMENTS, "three"),
    (resources::DEPLOYMENTS, "scaled"),
    (resources::PODS, "plain"),
    (resources::PODS, "job"),
];

const COMMANDS: [(&str, &str); 12] = [
    ("create namespace demo", "namespace/demo created"),
    (
        "-n demo create configmap cm --from-literal=a=b --from-literal=empty=",
        "configmap/cm created",
    ),
    (
        "-n demo create secret generic s --from-literal=k=v --type=example.com/t",
        "secret/s created",
    ),
    (
        "-n demo create serviceaccount sa",
        "serviceaccount/sa created",
    ),
    (
        "-n demo create deployment none --image=busybox:1 --replicas=0",
        "deployment.apps/none created",
    ),
    (
        "-n demo create deployment three --image=busybox:1 --image=nginx --replicas=3",
        "deployment.apps/three created",
    ),
    (
        "-n demo create deployment scaled --image=busybox:1 --port=80 -- sleep 1",
        "deployment.apps/scaled created",
    ),
    (
        "-n demo scale deployment scaled --replicas=2",
        "deployment.apps/scaled scaled",
    ),
    (
        "-n demo scale deployment scaled --replicas=0 --current-replicas=2",
        "deployment.apps/scaled scaled",
    ),
    ("-n demo run plain --image=busybox:1", "pod/plain created"),
    (
        "-n demo run job --image=busybox:1 --restart=Never --env=A=b --labels=x=y -- sleep 1",
        "pod/job created",
    ),
    (
        "-n demo run refused --image=busybox:1 --dry-run=server",
        "pod/refused created (server dry run)",
    ),
];

/// Every kubectl of this machine: also those that lie as `kubectl.1.NN` beside the known ones.
fn every_kubectl() -> BTreeSet<PathBuf> {
    let mut found = kubectl::programs();
    let folders: BTreeSet<_> = found
        .iter()
        .filter_map(|program| Some(program.parent()?.to_owned()))
        .collect();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let version = name.strip_prefix("kubectl.").unwrap_or_default();
            let is_version = version.split('.').all(|part| part.parse::<u32>().is_ok());
            if is_version {
                found.insert(entry.path());
            }
        }
    }
    found
}

#[tokio::test]
async fn every_kubectl_makes_the_same_objects_whatever_it_sends() {
    let mut first: Option<(PathBuf, Vec<Value>)> = None;
    let programs = every_kubectl();
    assert!(
        !programs.is_empty(),
        "install kubectl (Debian: kubernetes-client) to run this test"
    );
    for program in programs {
        let made = objects_of(program.clone()).await;
        let (oldest, wanted) = first.get_or_insert_with(|| (program.clone(), made.clone()));
        for (made, wanted) in made.iter().zip(wanted.iter()) {
            assert_eq!(
                made,
                wanted,
                "{} and {}",
                program.display(),
                oldest.display()
            );
        }
    }
}

/// Runs the commands against a server of their own.
async fn objects_of(program: PathBuf) -> Vec<Value> {
    let server = outside().await;
    let admin = server.pki.admin().unwrap();
    let config = server.data.path().join("admin.conf");
    server
        .pki
        .kubeconfig(&server.url, "kubernetes-admin", &admin)
        .write(&config)
        .unwrap();
    let kubectl = Kubectl {
        program,
        server: &server,
    };
    for (line, shows) in COMMANDS {
        kubectl.works(line, shows).await;
    }
    let mut objects = Vec::new();
    for (resource, name) in OBJECTS {
        objects.push(comparable(
            server.inside.get(&named(resource, name)).await.unwrap(),
        ));
    }
    deletions(&kubectl, &server).await;
    server.stop().await;
    objects
}

fn named(resource: ResourceName, name: &str) -> ObjectName {
    let namespace = if resource == resources::NAMESPACES {
        ""
    } else {
        "demo"
    };
    ObjectName::new(resource, namespace, name)
}

/// Without what is new in every object.
fn comparable(mut object: Value) -> Value {
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        assert!(metadata.remove(field).is_some(), "no {field}");
    }
    object
}

async fn deletions(kubectl: &Kubectl<'_>, server: &Outside) {
    let job = named(resources::PODS, "job");
    server.inside.bind(&job, "worker").await.unwrap();
    let delete = "-n demo delete pod job --grace-period=5 --wait=false";
    kubectl.works(delete, "deleted").await;
    let terminating = server.inside.get(&job).await.unwrap();
    assert_eq!(terminating["metadata"]["deletionGracePeriodSeconds"], 5);
    let delete = "-n demo delete pod job --grace-period=0 --force";
    kubectl.works(delete, "deleted").await;
    assert!(server.inside.get(&job).await.unwrap_err().is_not_found());
    let delete = "-n demo delete deployment three --cascade=orphan --wait=false";
    kubectl.works(delete, "deleted").await;
    let three = named(resources::DEPLOYMENTS, "three");
    let orphaning = server.inside.get(&three).await.unwrap();
    assert_eq!(orphaning["metadata"]["finalizers"], json!(["orphan"]));
}

/// A field of bytes that are shorter than 128.
fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(value.len()).unwrap()];
    field.extend_from_slice(value);
    field
}

fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw)].concat()
}

/// An object with nothing but a name.
fn object(api_version: &str, kind: &str, name: &str) -> Vec<u8> {
    enveloped(api_version, kind, &field(1, &field(1, name.as_bytes())))
}

#[tokio::test]
async fn a_body_in_protobuf_is_answered_in_json_or_refused_with_a_reason() {
    let server = outside().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let post = |body: Vec<u8>| json_of(&server, post_protobuf(path, body));
    let (code, made) = post(object("v1", "ConfigMap", "cm")).await;
    assert_eq!((code, &made["kind"]), (201, &json!("ConfigMap")), "{made}");
    let refusals: [(Vec<u8>, &str); 5] = [
        (
            object("v1", "Pod", "cm"),
            "Pod in version \"v1\" cannot be handled as a ConfigMap",
        ),
        (
            object("v1", "Endpoints", "cm"),
            "Endpoints in version \"v1\" cannot be handled as a ConfigMap: no kind \"Endpoints\" \
             is registered for version \"v1\"",
        ),
        (
            object("apps/v1", "ConfigMap", "cm"),
            "the API version in the data (apps/v1) does not match the expected API version (v1)",
        ),
        (
            b"{\"kind\":\"ConfigMap\"}".to_vec(),
            "the object provided is unrecognized (must be of type ConfigMap)",
        ),
        (
            object("v1", "ConfigMap", "cm")[..28].to_vec(),
            "the object provided is unrecognized (must be of type ConfigMap)",
        ),
    ];
    for (body, message) in refusals {
        let (code, status) = post(body).await;
        let found = status["message"].as_str().unwrap_or_default();
        assert!(code == 400 && found.contains(message), "{status}");
        assert_eq!(status["reason"], "BadRequest");
    }
    let (code, status) = post(object("v1", "ConfigMap", "Bad_Name")).await;
    assert_eq!(
        (code, &status["reason"]),
        (422, &json!("Invalid")),
        "{status}"
    );
    server.stop().await;
}

/// A deployment `web`, without replicas.
fn deployment() -> Vec<u8> {
    let label = [field(1, b"app"), field(2, b"web")].concat();
    let metadata = field(1, &field(11, &label));
    let template = [metadata, field(2, &container())].concat();
    let spec = [field(2, &field(1, &label)), field(3, &template)].concat();
    let raw = [field(1, &field(1, b"web")), field(2, &spec)].concat();
    enveloped("apps/v1", "Deployment", &raw)
}

/// Field 2 of a pod's specification.
fn container() -> Vec<u8> {
    field(2, &[field(1, b"main"), field(2, b"busybox:1")].concat())
}

#[tokio::test]
async fn a_scale_in_protobuf_may_be_zero() {
    let server = outside().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let (code, made) = json_of(&server, post_protobuf(path, deployment())).await;
    assert_eq!(
        (code, &made["spec"]["replicas"]),
        (201, &json!(1)),
        "{made}"
    );
    let scale = [field(1, &field(1, b"web")), field(2, &[1 << 3, 0])].concat();
    let scale = enveloped("autoscaling/v1", "Scale", &scale);
    let put = Call {
        method: Method::PUT,
        ..post_protobuf(format!("{path}/web/scale"), scale)
    };
    let (code, scaled) = json_of(&server, put).await;
    assert_eq!(code, 200, "{scaled}");
    let (_, web) = json_of(&server, get(format!("{path}/web"))).await;
    assert_eq!(web["spec"]["replicas"], 0);
    server.stop().await;
}

#[tokio::test]
async fn a_binding_and_options_of_a_deletion_may_come_in_protobuf() {
    let server = outside().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = [field(1, &field(1, b"p")), field(2, &container())].concat();
    let create = post_protobuf(pods, enveloped("v1", "Pod", &pod));
    let (code, made) = json_of(&server, create).await;
    assert_eq!(code, 201, "{made}");
    let target = [field(1, b"Node"), field(3, b"worker")].concat();
    let binding = [field(1, &field(1, b"p")), field(2, &target)].concat();
    let bind = post_protobuf(
        format!("{pods}/p/binding"),
        enveloped("v1", "Binding", &binding),
    );
    let (code, bound) = json_of(&server, bind).await;
    assert_eq!(code, 201, "{bound}");

    let delete = |options: &[u8]| {
        let options = enveloped("v1", "DeleteOptions", options);
        let delete = Call {
            method: Method::DELETE,
            ..post_protobuf(format!("{pods}/p"), options)
        };
        json_of(&server, delete)
    };
    let other_version = field(2, &field(2, b"1"));
    let (code, status) = delete(&other_version).await;
    assert_eq!(
        (code, &status["reason"]),
        (409, &json!("Conflict")),
        "{status}"
    );
    let grace_period = [1 << 3, 7];
    let (code, pod) = delete(&grace_period).await;
    assert_eq!(code, 200, "{pod}");
    assert_eq!(pod["spec"]["nodeName"], "worker");
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 7);
    server.stop().await;
}
