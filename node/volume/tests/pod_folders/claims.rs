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
}
