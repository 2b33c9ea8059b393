//! Claims and the paths that they are bound to.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use serde_json::json;
use swiftlet_model::control_plane::RefKind;
use swiftlet_model::volumes::{VolumeError, Volumes as _};

use crate::support::{Fixture, pod};

#[tokio::test]
async fn a_claim_leads_to_its_disk_once_it_is_bound_and_the_disk_stays() {
    let fixture = Fixture::new();
    let disk = fixture.dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    std::fs::write(disk.join("mine"), "kept").unwrap();
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]);
    let pod = pod(volume, Some(2000));
    let error = fixture.volumes.set_up(&pod).await.unwrap_err();
    let words = "MountVolume.SetUp failed for volume \"data\" : \
                 persistentvolumeclaim \"mine\" not found";
    assert_eq!(error.to_string(), words);

    let claim = |phase: &str| {
        json!({"metadata": {"uid": "7"}, "spec": {"volumeName": "pv"},
            "status": {"phase": phase}})
    };
    let kind = RefKind::PersistentVolumeClaim;
    fixture.table.put_whole(kind, "mine", &claim("Pending"));
    let error = fixture.volumes.set_up(&pod).await.unwrap_err();
    assert!(matches!(error, VolumeError::NotBound { .. }), "{error}");

    fixture.table.put_whole(kind, "mine", &claim("Bound"));
    let local = json!({"spec": {"local": {"path": disk}, "claimRef": {"uid": "7"}}});
    fixture
        .table
        .put_whole(RefKind::PersistentVolume, "pv", &local);
    let places = fixture.volumes.set_up(&pod).await.unwrap();
    assert_eq!(places["data"], disk);
    let file = std::fs::metadata(disk.join("mine")).unwrap();
    assert_eq!((file.gid(), file.mode() & 0o660), (2000, 0o660));

    // A pod that only reads does not take it over.
    let mut reader = (*pod).clone();
    let spec = reader.spec.as_mut().unwrap();
    spec.security_context.as_mut().unwrap().fs_group = Some(3000);
    let volume = &mut spec.volumes.as_mut().unwrap()[0];
    volume.persistent_volume_claim.as_mut().unwrap().read_only = Some(true);
    fixture.volumes.set_up(&Arc::new(reader)).await.unwrap();
    assert_eq!(std::fs::metadata(disk.join("mine")).unwrap().gid(), 2000);
    fixture.tear_down().await;
    assert_eq!(std::fs::read_to_string(disk.join("mine")).unwrap(), "kept");
    // The claim is named by the pod: who counts that ends its interest, and others may name it too.
    let forgotten = fixture.table.forgotten.lock().unwrap();
    let forgotten: Vec<_> = forgotten.iter().map(|one| (one.kind, &*one.name)).collect();
    assert_eq!(forgotten, [(RefKind::PersistentVolume, "pv")]);
}

#[tokio::test]
async fn a_disk_of_another_node_is_not_looked_for_here() {
    let fixture = Fixture::new();
    let disk = fixture.dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let table = &fixture.table;
    let claim = json!({"metadata": {"uid": "7"}, "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"}});
    table.put_whole(RefKind::PersistentVolumeClaim, "mine", &claim);
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]});
    let terms = json!([{"matchExpressions": [expression]}]);
    let local = json!({"spec": {"local": {"path": disk}, "claimRef": {"uid": "7"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    table.put_whole(RefKind::PersistentVolume, "pv", &local);
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "mine"}}]);
    for (name, is_here) in [("n2", false), ("n1", true)] {
        let labels = json!({"kubernetes.io/hostname": name});
        let node = json!({"metadata": {"name": name, "labels": labels}});
        table.put_whole(RefKind::Node, name, &node);
        let mut pod = (*pod(volume.clone(), None)).clone();
        pod.spec.as_mut().unwrap().node_name = Some(name.to_owned());
        let made = fixture.volumes.set_up(&Arc::new(pod)).await;
        assert_eq!(made.is_ok(), is_here, "{made:?}");
        if let Err(error) = made {
            let words = "MountVolume.NodeAffinity check failed for volume \"data\" : \
                         no matching NodeSelectorTerms";
            assert_eq!(error.to_string(), words);
        }
    }
    fixture.tear_down().await;
    // The kubelet itself needs the node.
    let forgotten = fixture.table.forgotten.lock().unwrap();
    assert!(forgotten.iter().all(|one| one.kind != RefKind::Node));
}
