//! What goes and what stays.

use jiff::Timestamp;
use proptest::prelude::*;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_model::runtime::{ContainerState, ContainerStatus};

use super::*;

const GIB: u64 = 1 << 30;

fn image(id: &str, size_bytes: u64) -> Image {
    Image {
        id: id.to_owned(),
        tags: vec![format!("docker.io/library/{id}:latest")],
        digests: vec![format!("docker.io/library/{id}@sha256:{id}")],
        size_bytes,
        ..Image::default()
    }
}

fn pod(image: &str, image_id: &str) -> RuntimePod {
    let key = PodKey {
        namespace: "default".into(),
        name: "p".into(),
        uid: PodUid::from("p"),
    };
    let container = ContainerStatus {
        id: "c".into(),
        name: "main".into(),
        sandbox: "s".into(),
        attempt: 0,
        state: ContainerState::Exited,
        created_at: Timestamp::UNIX_EPOCH,
        started_at: None,
        exit: None,
        image: image.to_owned(),
        image_id: image_id.to_owned(),
        spec_hash: None,
    };
    RuntimePod {
        containers: vec![container],
        ..RuntimePod::empty(key)
    }
}

fn ids(candidates: Vec<Candidate>) -> Vec<String> {
    candidates.into_iter().map(|one| one.id).collect()
}

#[test]
fn a_file_system_below_the_high_threshold_is_left_alone() {
    let policy = ImageGcPolicy::default();
    let level = |available| Level {
        capacity: 100 * GIB,
        available,
    };
    assert_eq!(bytes_to_free(&policy, level(16 * GIB)), 0);
    assert_eq!(bytes_to_free(&policy, level(15 * GIB)), 5 * GIB);
    assert_eq!(bytes_to_free(&policy, level(0)), 20 * GIB);
    assert_eq!(bytes_to_free(&policy, Level::default()), 0);
    let never = ImageGcPolicy {
        high_percent: 100,
        ..policy
    };
    assert_eq!(bytes_to_free(&never, level(0)), 0);
}

#[test]
fn the_image_of_a_container_that_has_ended_is_in_use_however_it_is_named() {
    let policy = ImageGcPolicy::default();
    for (name, id) in [
        ("a", "x"),
        ("a:latest", "x"),
        ("docker.io/library/a:latest", "x"),
        ("x", "a"),
        ("x", "docker.io/library/a@sha256:a"),
    ] {
        let mut records = ImageRecords::default();
        let now = Instant::now();
        records.observe(&[image("a", 1), image("b", 1)], &[pod(name, id)], now);
        assert_eq!(ids(records.unused(&policy, now)), ["b"], "{name} {id}");
    }
}

#[test]
fn the_longest_unused_goes_first_and_what_has_just_come_stays() {
    let (policy, start) = (ImageGcPolicy::default(), Instant::now());
    let at = |minutes| start + Duration::from_mins(minutes);
    let mut records = ImageRecords::default();
    let mut all = vec![image("never", 1), image("early", 1), image("late", 1)];
    records.observe(&all, &[pod("early", "")], at(0));
    records.observe(&all, &[pod("late", "")], at(5));
    all.push(image("new", 1));
    records.observe(&all, &[], at(9));
    records.observe(&all, &[], at(10));
    assert_eq!(
        ids(records.unused(&policy, at(10))),
        ["never", "early", "late"]
    );
    assert_eq!(
        ids(records.unused(&policy, at(11))),
        ["never", "new", "early", "late"]
    );
}

#[test]
fn an_image_that_nobody_used_for_too_long_goes() {
    let policy = ImageGcPolicy {
        maximum_age: Some(Duration::from_hours(1)),
        ..ImageGcPolicy::default()
    };
    let start = Instant::now();
    let at = |minutes| start + Duration::from_mins(minutes);
    let mut records = ImageRecords::default();
    let all = [image("a", 1), image("b", 1)];
    records.observe(&all, &[], at(0));
    records.observe(&all, &[pod("a", "")], at(30));
    assert!(
        records.outlived(&policy, at(60)).is_empty(),
        "not watched for longer"
    );
    assert_eq!(ids(records.outlived(&policy, at(61))), ["b"]);
    assert_eq!(ids(records.outlived(&policy, at(91))), ["b", "a"]);
    let off = ImageGcPolicy::default();
    assert!(records.outlived(&off, at(91)).is_empty());
}

#[test]
fn what_the_runtime_wants_to_keep_stays() {
    let pause = Image {
        pinned: true,
        ..image("pause", 1)
    };
    let (policy, now) = (ImageGcPolicy::default(), Instant::now());
    let mut records = ImageRecords::default();
    records.observe(&[pause], &[], now);
    assert!(records.unused(&policy, now).is_empty());
}

proptest! {
    #[test]
    fn what_is_freed_brings_the_disk_to_the_low_threshold(
        capacity in 1..=u64::MAX, part in 0..=u64::MAX, low in 0_u64..=100, more in 0_u64..=100
    ) {
        let available = part.min(capacity);
        let policy = ImageGcPolicy {
            high_percent: (low + more).min(100),
            low_percent: low,
            ..ImageGcPolicy::default()
        };
        let disk = Level { capacity, available };
        let free = bytes_to_free(&policy, disk);
        prop_assert!(free <= disk.used());
        if free > 0 {
            let after = u128::from(available) + u128::from(free);
            prop_assert_eq!(after, u128::from(capacity) * u128::from(100 - low) / 100);
        }
    }

    #[test]
    fn no_image_in_use_and_no_young_image_is_a_candidate(
        looks in prop::collection::vec((0_u64..300, 0_usize..6, 0_usize..6), 1..20)
    ) {
        let policy = ImageGcPolicy {
            maximum_age: Some(Duration::from_mins(1)),
            ..Default::default()
        };
        let mut now = Instant::now();
        let mut records = ImageRecords::default();
        let mut seen: HashMap<String, Option<Instant>> = HashMap::new();
        let mut first = true;
        for (seconds, count, used) in looks {
            now += Duration::from_secs(seconds);
            let all: Vec<_> = (0..count).map(|n| image(&format!("i{n}"), 1)).collect();
            let name = format!("i{used}");
            records.observe(&all, &[pod(&name, "")], now);
            seen.retain(|id, _| all.iter().any(|one| one.id == *id));
            for one in &all {
                seen.entry(one.id.clone()).or_insert((!first).then_some(now));
            }
            first = false;
            let unused = ids(records.unused(&policy, now));
            prop_assert!(!unused.contains(&name));
            prop_assert!(!ids(records.outlived(&policy, now)).contains(&name));
            for id in unused {
                let age = seen[&id].map(|at| now - at);
                prop_assert!(age.is_none_or(|age| age >= policy.minimum_age));
            }
        }
    }
}
