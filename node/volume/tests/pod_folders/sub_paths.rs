//! Parts of volumes: bound where the pod cannot change them, and never outside.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use swiftlet_model::ids::PodUid;
use swiftlet_model::volumes::{SubPath, VolumeError, Volumes as _};
use swiftlet_sys::mount;

use crate::support::{Fixture, UID, pod, read};

async fn disk(fixture: &Fixture) -> PathBuf {
    let pod = pod(json!([{"name": "disk", "emptyDir": {}}]), Some(2000));
    fixture.volumes.set_up(&pod).await.unwrap()["disk"].clone()
}

async fn part(fixture: &Fixture, volume: &Path, part: &str) -> Result<PathBuf, VolumeError> {
    let order = SubPath {
        volume: "disk".into(),
        path: volume.to_owned(),
        container: "main".into(),
        index: 3,
        sub_path: part.into(),
    };
    fixture.volumes.sub_path(&PodUid::from(UID), &order).await
}

#[tokio::test]
async fn a_part_is_made_like_its_volume_bound_and_unbound_at_the_end() {
    let fixture = Fixture::new();
    let disk = disk(&fixture).await;
    let place = part(&fixture, &disk, "deep/er").await.unwrap();
    assert_eq!(place, fixture.at("volume-subpaths/disk/main/3"));
    assert!(mount::is_mounted(&place).unwrap());
    let made = std::fs::metadata(&place).unwrap();
    assert_eq!((made.gid(), made.mode() & 0o7777), (2000, 0o2777));
    std::fs::write(place.join("file"), "x").unwrap();
    assert_eq!(read(&disk, "deep/er/file"), "x");

    // Again, as for the next attempt of the container: it is the same mount.
    assert_eq!(part(&fixture, &disk, "deep/er").await.unwrap(), place);
    assert_eq!(mount::below(&place).unwrap().len(), 1);
    // Another part, and a file, take its place.
    std::fs::write(disk.join("file"), "y").unwrap();
    let place = part(&fixture, &disk, "file").await.unwrap();
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "y");
    assert_eq!(mount::below(&place).unwrap().len(), 1);
    fixture.tear_down().await;
}

#[tokio::test]
async fn a_part_stays_what_it_was_when_its_path_leads_elsewhere() {
    let fixture = Fixture::new();
    let disk = disk(&fixture).await;
    std::fs::create_dir(disk.join("a")).unwrap();
    std::fs::write(disk.join("a/file"), "mine").unwrap();
    let place = part(&fixture, &disk, "a").await.unwrap();
    std::fs::rename(disk.join("a"), disk.join("b")).unwrap();
    symlink("/etc", disk.join("a")).unwrap();
    assert_eq!(read(&place, "file"), "mine");
    let error = part(&fixture, &disk, "a").await.unwrap_err();
    let words = "failed to prepare subPath for volumeMount \"disk\" of container \"main\"";
    assert_eq!(error.to_string(), words);
    fixture.tear_down().await;
    assert!(Path::new("/etc/passwd").exists());
}

#[tokio::test]
async fn what_leads_out_of_a_volume_is_refused() {
    let fixture = Fixture::new();
    let disk = disk(&fixture).await;
    symlink("..", disk.join("up")).unwrap();
    symlink("/proc/self/root/etc", disk.join("magic")).unwrap();
    for bad in [
        "/etc",
        "../x",
        "a/../../x",
        "up",
        "up/x",
        "magic",
        "magic/x",
    ] {
        assert!(part(&fixture, &disk, bad).await.is_err(), "{bad}");
    }
    let error = part(&fixture, &disk, "/etc").await.unwrap_err();
    let words = "error SubPath `/etc` must not be an absolute path";
    assert_eq!(error.to_string(), words);
    fixture.tear_down().await;
}

/// Tries of the test below: each is a race that one side or the other wins.
const RACES: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_swapped_in_never_leads_out() {
    let fixture = Fixture::new();
    let disk = disk(&fixture).await;
    // Another device: by it a mount tells where it leads.
    let outside = fixture.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    mount::tmpfs(&outside, None, 0o700).unwrap();
    for race in 0..RACES {
        // What is there already would be found without being made.
        std::fs::create_dir(outside.join(race.to_string())).unwrap();
    }
    symlink(&outside, disk.join("link")).unwrap();
    std::fs::create_dir(disk.join("real")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (swap_over, folder) = (Arc::clone(&over), disk.clone());
    let swaps = std::thread::spawn(move || {
        while !swap_over.load(Ordering::Relaxed) {
            for name in ["real", "link"] {
                // Either may be away for the moment: then the next turn does it.
                std::fs::rename(folder.join(name), folder.join("x")).ok();
                std::thread::yield_now();
                std::fs::rename(folder.join("x"), folder.join(name)).ok();
            }
        }
    });
    let inside = std::fs::metadata(&disk).unwrap().dev();
    let (mut bound, mut refused) = (0, 0);
    for race in (0..RACES).chain(0..RACES) {
        match part(&fixture, &disk, &format!("x/{race}")).await {
            Ok(place) => {
                bound += 1;
                assert_eq!(std::fs::metadata(&place).unwrap().dev(), inside);
            }
            Err(_) => refused += 1,
        }
    }
    over.store(true, Ordering::Relaxed);
    swaps.join().unwrap();
    // Both sides have won: the link was met, and so was the folder.
    assert!(bound > 0 && refused > 0, "{bound} {refused}");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), RACES);
    let mode = std::fs::metadata(&outside).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o700);
    mount::unmount(&outside).unwrap();
    fixture.tear_down().await;
}
