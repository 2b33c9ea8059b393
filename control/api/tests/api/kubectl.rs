//! Real kubectl, oldest and newest that the machine has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use crate::support::{Outside, outside};

/// Versions that must work where they are installed beside the default one.
const VERSIONS: [&str; 2] = ["kubectl.1.27", "kubectl.1.33"];

/// Every kubectl that is to be tried: the one on the path, and the named versions that lie beside
/// it, beside what it links to, or in a package that brings kubectl.
pub(crate) fn programs() -> BTreeSet<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: BTreeSet<PathBuf> = std::env::split_paths(&path).collect();
    let mut found = BTreeSet::new();
    for folder in folders.clone() {
        if let Ok(real) = folder.join("kubectl").canonicalize() {
            folders.extend(real.parent().map(Path::to_path_buf));
            found.insert(real);
        }
    }
    let listed = std::process::Command::new("dpkg")
        .args(["-L", "kubectl", "google-cloud-cli", "kubernetes-client"])
        .stderr(Stdio::null())
        .output();
    let listed = listed.map(|output| output.stdout).unwrap_or_default();
    for line in String::from_utf8_lossy(&listed)
        .lines()
        .filter(|line| line.contains("kubectl"))
    {
        folders.extend(Path::new(line).parent().map(Path::to_path_buf));
    }
    let named = folders
        .iter()
        .flat_map(|folder| VERSIONS.map(|version| folder.join(version)));
    found.extend(named.filter(|program| program.is_file()));
    found
}

/// One kubectl against one server.
pub(crate) struct Kubectl<'a> {
    pub(crate) program: PathBuf,
    pub(crate) server: &'a Outside,
}

impl Kubectl<'_> {
    /// Runs a command line; answers its exit code, and what it printed.
    async fn run(&self, line: &str) -> (bool, String) {
        let home = self.server.data.path();
        let output = Command::new(&self.program)
            .args(line.split_whitespace())
            .env("KUBECONFIG", home.join("admin.conf"))
            .env(
                "HOME",
                home.join(self.program.file_name().unwrap_or_default()),
            )
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(std::time::Duration::from_mins(1), output);
        let output = output.await.expect("kubectl ends").expect("kubectl runs");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    }

    pub(crate) async fn works(&self, line: &str, shows: &str) {
        let (success, text) = self.run(line).await;
        let program = self.program.display();
        assert!(
            success && text.contains(shows),
            "{program} {line}\nwanted {shows:?}, got:\n{text}"
        );
    }

    async fn fails(&self, line: &str, shows: &str) {
        let (success, text) = self.run(line).await;
        let program = self.program.display();
        assert!(
            !success && text.contains(shows),
            "{program} {line}\nwanted {shows:?}, got:\n{text}"
        );
    }
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: applied, namespace: demo}
spec:
  containers: [{name: main, image: 'busybox:1', command: [sleep, '1']}]
";

#[tokio::test]
async fn kubectl_works_in_its_oldest_and_newest_version() {
    let programs = programs();
    assert!(
        !programs.is_empty(),
        "install kubectl (Debian: kubernetes-client) to run this test"
    );
    let server = outside().await;
    let admin = server.pki.admin().unwrap();
    let config = server.data.path().join("admin.conf");
    server
        .pki
        .kubeconfig(&server.url, "kubernetes-admin", &admin)
        .write(&config)
        .unwrap();
    for program in programs {
        let kubectl = Kubectl {
            program,
            server: &server,
        };
        objects(&kubectl).await;
        workloads(&kubectl).await;
        served_lately(&kubectl).await;
        manifests(&kubectl).await;
        end(&kubectl).await;
    }
    server.stop().await;
}

async fn objects(kubectl: &Kubectl<'_>) {
    kubectl.works("version", "v1.34.0+swiftlet").await;
    kubectl.works("api-resources", "deployments").await;
    kubectl
        .works("create namespace demo", "namespace/demo created")
        .await;
    kubectl
        .works(
            "-n demo create configmap cm --from-literal=a=b",
            "configmap/cm created",
        )
        .await;
    kubectl
        .works(
            "-n demo create secret generic s --from-literal=k=v",
            "secret/s created",
        )
        .await;
    kubectl
        .works(
            "-n demo create serviceaccount sa",
            "serviceaccount/sa created",
        )
        .await;
    kubectl
        .works("-n demo get secret s -o jsonpath={.data.k}", "dg==")
        .await;
    kubectl.works("-n demo get cm cm -o wide", "NAME").await;
    kubectl.works("-n demo get cm cm -o yaml", "a: b").await;
    kubectl
        .works("-n demo get cm cm -o json", "\"a\": \"b\"")
        .await;
    kubectl
        .works("-n demo label cm cm tier=front", "labeled")
        .await;
    kubectl
        .works("-n demo get cm -l tier=front -o name", "configmap/cm")
        .await;
    kubectl.works("-n demo describe cm cm", "tier=front").await;
    kubectl
        .fails("-n demo get cm nobody", "configmaps \"nobody\" not found")
        .await;
    kubectl
        .fails(
            "get widgets",
            "the server doesn't have a resource type \"widgets\"",
        )
        .await;
}

/// Tokens, services, classes, and a look into a running pod.
async fn served_lately(kubectl: &Kubectl<'_>) {
    // A token in three parts, of which the first says how it is signed.
    kubectl
        .works("-n demo create token sa", "eyJhbGciOiJFUzI1NiIs")
        .await;
    let services = [
        (
            "-n demo create service clusterip inner --tcp=80:8080",
            "service/inner created",
        ),
        (
            "-n demo create service nodeport outer --tcp=80",
            "service/outer created",
        ),
        ("-n demo get service outer", "80:3"),
        ("-n demo get svc inner -o wide", "app=inner"),
        ("-n demo delete service inner outer", "deleted"),
        (
            "create priorityclass high --value=1000",
            "priorityclass.scheduling.k8s.io/high created",
        ),
        ("get pc high", "1000"),
        ("delete pc high", "deleted"),
        ("get pc system-node-critical", "2000001000"),
        ("get pv,pvc,sc,runtimeclass -A", "No resources found"),
        ("auth can-i create pods", "yes"),
    ];
    for (line, shows) in services {
        kubectl.works(line, shows).await;
    }
    kubectl
        .works("-n demo run seen --image=busybox:1", "pod/seen created")
        .await;
    kubectl
        .works(
            "-n demo debug seen --image=busybox:1 -c look --attach=false",
            "",
        )
        .await;
    kubectl
        .works(
            "-n demo get pod seen -o jsonpath={.spec.ephemeralContainers[*].name}",
            "look",
        )
        .await;
    kubectl.works("-n demo delete pod seen", "deleted").await;
}

async fn workloads(kubectl: &Kubectl<'_>) {
    let create = "-n demo create deployment web --image=busybox:1 --replicas=2";
    kubectl.works(create, "deployment.apps/web created").await;
    kubectl
        .works("-n demo scale deployment web --replicas=5", "scaled")
        .await;
    kubectl
        .works(
            "-n demo get deployment web -o jsonpath={.spec.replicas}",
            "5",
        )
        .await;
    kubectl
        .works("-n demo get deployment -o wide", "busybox:1")
        .await;
    kubectl
        .works("-n demo describe deployment web", "5 desired")
        .await;
    kubectl
        .works(
            "-n demo set image deployment/web busybox=busybox:2",
            "image updated",
        )
        .await;
    kubectl
        .works(
            "-n demo run p --image=busybox:1 --dry-run=server -o name",
            "pod/p",
        )
        .await;
    kubectl
        .fails("-n demo get pod p", "pods \"p\" not found")
        .await;
    kubectl
        .works("-n demo run p --image=busybox:1", "pod/p created")
        .await;
    kubectl.works("-n demo get pods -o wide", "Pending").await;
    kubectl.works("-n demo describe pod p", "QoS Class").await;
    kubectl
        .fails(
            "-n demo wait --for=condition=Ready pod/p --timeout=1s",
            "timed out",
        )
        .await;
    kubectl
        .works(
            "-n demo wait --for=jsonpath={.status.phase}=Pending pod/p",
            "condition met",
        )
        .await;
    kubectl
        .works("-n demo get all", "deployment.apps/web")
        .await;
    kubectl.works("-n demo delete pod p", "deleted").await;
    kubectl
        .works("-n demo delete deployment web", "deleted")
        .await;
}

async fn manifests(kubectl: &Kubectl<'_>) {
    let file = kubectl.server.data.path().join("pod.yaml");
    let apply = format!("apply -f {}", file.display());
    std::fs::write(&file, POD).unwrap();
    kubectl.works(&apply, "pod/applied created").await;
    kubectl.works(&apply, "pod/applied unchanged").await;
    std::fs::write(&file, POD.replace("busybox:1", "busybox:2")).unwrap();
    kubectl.works(&apply, "pod/applied configured").await;
    kubectl
        .fails(&format!("{apply} --server-side"), "erver-side apply")
        .await;
    kubectl
        .works(&format!("delete -f {}", file.display()), "deleted")
        .await;
    std::fs::write(&file, POD.replace("image:", "imagee:")).unwrap();
    kubectl
        .fails(&apply, "unknown field \"spec.containers[0].imagee\"")
        .await;
    std::fs::write(&file, POD.replace("applied", "Bad_Name")).unwrap();
    kubectl
        .fails(
            &apply,
            "is invalid: metadata.name: Invalid value: \"Bad_Name\"",
        )
        .await;
    std::fs::write(&file, POD.replace("[sleep, '1']", "sleep")).unwrap();
    kubectl
        .fails(&apply, "json: cannot unmarshal string into Go struct field")
        .await;
}

/// Nobody removes a namespace's content here, so the test plays that part.
async fn end(kubectl: &Kubectl<'_>) {
    kubectl
        .works("-n demo delete cm,secret,serviceaccount --all", "deleted")
        .await;
    kubectl
        .works("delete namespace demo --wait=false", "deleted")
        .await;
    kubectl.works("get namespace demo", "Terminating").await;
    let file = kubectl.server.data.path().join("finalize.json");
    let (_, namespace) = kubectl.run("get namespace demo -o json").await;
    let mut namespace: serde_json::Value = serde_json::from_str(&namespace).unwrap();
    namespace["spec"]["finalizers"] = serde_json::json!([]);
    std::fs::write(&file, namespace.to_string()).unwrap();
    let raw = "replace --raw /api/v1/namespaces/demo/finalize -f";
    kubectl
        .works(&format!("{raw} {}", file.display()), "\"demo\"")
        .await;
    kubectl.fails("get namespace demo", "not found").await;
}
