use super::*;

#[test]
fn a_new_node_is_tainted_once_and_an_object_protected_once() {
    let mut node = json!({ "spec": {} });
    taint_new_node(&mut node);
    taint_new_node(&mut node);
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert_eq!(taints.len(), 1);
    assert_eq!(taints[0]["effect"], "NoSchedule");
    let mut claim = json!({ "metadata": {} });
    protect(&mut claim, "kubernetes.io/pvc-protection");
    protect(&mut claim, "kubernetes.io/pvc-protection");
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
}
