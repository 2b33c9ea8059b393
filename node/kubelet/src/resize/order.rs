//! In which order limits are changed: a pod grows before its containers, and shrinks after them, so
//! that it never has less than they have. Pure.

use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::LinuxResources;

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Write the pod's own limits.
    Pod(LinuxResources),
    /// Have the runtime change these containers.
    Containers(Vec<ContainerId>),
}

/// The pod's own limits, as they are and as they shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodChange {
    pub(crate) has: LinuxResources,
    pub(crate) wants: LinuxResources,
}

/// A living container's limits, as they are and as they shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerChange {
    pub(crate) id: ContainerId,
    pub(crate) has: LinuxResources,
    pub(crate) wants: LinuxResources,
}

/// `None`: everything is as it shall be.
pub(crate) fn next(pod: &PodChange, containers: &[ContainerChange]) -> Option<Change> {
    let between = larger(&pod.has, &pod.wants);
    if between != pod.has {
        return Some(Change::Pod(between));
    }
    let open = || containers.iter().filter(|one| one.has != one.wants);
    // What one container gives back another may be waiting for.
    let shrinking: Vec<_> = open()
        .filter(|one| larger(&one.has, &one.wants) == one.has)
        .map(|one| one.id.clone())
        .collect();
    if !shrinking.is_empty() {
        return Some(Change::Containers(shrinking));
    }
    let rest: Vec<_> = open().map(|one| one.id.clone()).collect();
    if !rest.is_empty() {
        return Some(Change::Containers(rest));
    }
    (pod.has != pod.wants).then(|| Change::Pod(pod.wants.clone()))
}

/// For each limit the larger one; 0 is no limit, and so the largest.
fn larger(one: &LinuxResources, other: &LinuxResources) -> LinuxResources {
    let limit = |one: i64, other: i64| match (one, other) {
        (0, _) | (_, 0) => 0,
        (one, other) => one.max(other),
    };
    LinuxResources {
        cpu_shares: one.cpu_shares.max(other.cpu_shares),
        cpu_quota_us: limit(one.cpu_quota_us, other.cpu_quota_us),
        memory_limit_bytes: limit(one.memory_limit_bytes, other.memory_limit_bytes),
        ..one.clone()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn memory(bytes: i64) -> LinuxResources {
        LinuxResources {
            cpu_shares: 2,
            memory_limit_bytes: bytes,
            ..LinuxResources::default()
        }
    }

    fn all(containers: &[(i64, i64)]) -> (PodChange, Vec<ContainerChange>) {
        let sum = |of: fn(&(i64, i64)) -> i64| containers.iter().map(of).sum();
        let pod = PodChange {
            has: memory(sum(|one| one.0)),
            wants: memory(sum(|one| one.1)),
        };
        let containers = containers.iter().enumerate();
        let containers = containers.map(|(number, (has, wants))| ContainerChange {
            id: number.to_string().into(),
            has: memory(*has),
            wants: memory(*wants),
        });
        (pod, containers.collect())
    }

    proptest! {
        #[test]
        fn a_pod_never_has_less_than_its_containers_and_ends_as_it_shall(
            limits in prop::collection::vec((1_i64..50, 1_i64..50), 1..5)
        ) {
            let (mut pod, mut containers) = all(&limits);
            let mut steps = 0;
            while let Some(change) = next(&pod, &containers) {
                match change {
                    Change::Pod(limits) => pod.has = limits,
                    Change::Containers(ids) => {
                        for one in containers.iter_mut().filter(|one| ids.contains(&one.id)) {
                            one.has = one.wants.clone();
                        }
                    }
                }
                let sum: i64 = containers.iter().map(|one| one.has.memory_limit_bytes).sum();
                prop_assert!(pod.has.memory_limit_bytes >= sum);
                steps += 1;
                prop_assert!(steps <= 4, "grow, shrink, grow, shrink");
            }
            prop_assert_eq!(pod.has, pod.wants);
        }
    }
}
