use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::authn;

fn user_of(identity: &Identity) -> swiftlet_client::api::UserInfo {
    let der = CertificateDer::from_pem_slice(identity.certificate_pem.as_bytes()).unwrap();
    authn::user_of_certificate(&der).unwrap()
}

#[test]
fn a_second_start_uses_the_same_authority_and_certificates() {
    let data = tempfile::tempdir().unwrap();
    let first = Pki::open(data.path()).unwrap();
    let names = ["10.0.0.7".to_string(), "control.example".to_string()];
    let (serving, admin) = (first.serving(&names).unwrap(), first.admin().unwrap());
    let second = Pki::open(data.path()).unwrap();
    assert_eq!(first.ca_pem(), second.ca_pem());
    assert_eq!(
        serving.certificate_pem,
        second.serving(&names).unwrap().certificate_pem
    );
    assert_eq!(admin.key_pem, second.admin().unwrap().key_pem);
}

#[test]
fn a_serving_certificate_that_lacks_a_name_is_made_anew() {
    let data = tempfile::tempdir().unwrap();
    let pki = Pki::open(data.path()).unwrap();
    let old = pki.serving(&[]).unwrap();
    let new = pki.serving(&["10.1.2.3".to_string()]).unwrap();
    assert_ne!(old.certificate_pem, new.certificate_pem);
    assert!(covers(
        &new,
        &["10.1.2.3".to_string(), "localhost".to_string()]
    ));
}

#[test]
fn keys_and_kubeconfigs_are_for_their_owner_alone() {
    let data = tempfile::tempdir().unwrap();
    let pki = Pki::open(data.path()).unwrap();
    let admin = pki.admin().unwrap();
    let config = data.path().join("admin.conf");
    pki.kubeconfig("https://127.0.0.1:6443", "kubernetes-admin", &admin)
        .write(&config)
        .unwrap();
    for file in [
        config,
        data.path().join("pki/ca.key"),
        data.path().join("pki/admin.key"),
    ] {
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
}

#[test]
fn a_client_certificate_names_its_user_and_groups() {
    let data = tempfile::tempdir().unwrap();
    let pki = Pki::open(data.path()).unwrap();
    let admin = user_of(&pki.admin().unwrap());
    assert_eq!(admin.name, "kubernetes-admin");
    assert_eq!(admin.groups, ["system:masters", "system:authenticated"]);
    let node = user_of(&pki.node("worker-1").unwrap());
    assert_eq!(node.node_name(), Some("worker-1"));
}

#[test]
fn a_node_of_old_gets_a_certificate_that_it_can_serve_with() {
    let folder = tempfile::tempdir().unwrap();
    let pki = Pki::open(folder.path()).unwrap();
    let groups = ["system:nodes"];
    let old = pki.client("node-worker-1", "system:node:worker-1", &groups);
    assert!(!is_for_serving(&old.unwrap()));
    let new = pki.node("worker-1").unwrap();
    assert!(is_for_serving(&new));
    let kept = pki.node("worker-1").unwrap();
    assert_eq!(kept.certificate_pem, new.certificate_pem);
}
