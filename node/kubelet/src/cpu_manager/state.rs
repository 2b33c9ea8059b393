//! Who has which CPUs, and the file that remembers it. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use swiftlet_model::ids::PodUid;

use crate::cpu_manager::allocate::choose;
use crate::cpu_manager::topology::{Cpu, CpuSet};

/// Why a container gets no CPUs of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// There are not so many.
    #[error(
        "not enough cpus available to satisfy request: requested={requested}, \
         available={available}"
    )]
    NotEnough {
        /// How many are wanted.
        requested: usize,
        /// How many there are.
        available: usize,
    },
}

type Containers = BTreeMap<String, CpuSet>;

/// All CPUs belong to one container, or to all that share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuState {
    cpus: Vec<Cpu>,
    reserved: CpuSet,
    owners: BTreeMap<PodUid, Containers>,
}

impl CpuState {
    pub(super) fn new(cpus: Vec<Cpu>, reserved: CpuSet) -> Self {
        Self {
            cpus,
            reserved,
            owners: BTreeMap::new(),
        }
    }

    /// What nobody has for itself.
    pub(super) fn shared(&self) -> CpuSet {
        let all: CpuSet = self.cpus.iter().map(|cpu| cpu.id).collect();
        all.without(&self.exclusive())
    }

    fn exclusive(&self) -> CpuSet {
        let all = self.owners.values().flat_map(BTreeMap::values);
        all.fold(CpuSet::default(), |all, one| all.union(one))
    }

    /// The container's own CPUs.
    pub(super) fn of(&self, pod: &PodUid, container: &str) -> Option<&CpuSet> {
        self.owners.get(pod)?.get(container)
    }

    /// Whether the pod has any.
    pub(super) fn is_owner(&self, pod: &PodUid) -> bool {
        self.owners.contains_key(pod)
    }

    /// All that the pod's containers have.
    pub(super) fn of_pod(&self, pod: &PodUid) -> CpuSet {
        let own = self.owners.get(pod).into_iter().flat_map(BTreeMap::values);
        own.fold(CpuSet::default(), |all, one| all.union(one))
    }

    /// Gives each container as many as it asks for; what it has it keeps. All or none.
    pub(super) fn assign(
        &mut self,
        pod: &PodUid,
        wanted: &[(String, usize)],
    ) -> Result<bool, CpuError> {
        let mut containers = self.owners.get(pod).cloned().unwrap_or_default();
        let mut free = self.shared().without(&self.reserved);
        let mut changed = false;
        for (name, count) in wanted {
            if containers.contains_key(name) {
                continue;
            }
            let chosen = choose(&self.cpus, &free, *count).ok_or(CpuError::NotEnough {
                requested: *count,
                available: free.len(),
            })?;
            free = free.without(&chosen);
            containers.insert(name.clone(), chosen);
            changed = true;
        }
        if changed {
            self.owners.insert(pod.clone(), containers);
        }
        Ok(changed)
    }

    /// Gives back what pods had that are gone.
    pub(super) fn retain(&mut self, is_there: impl Fn(&PodUid) -> bool) -> bool {
        let before = self.owners.len();
        self.owners.retain(|pod, _| is_there(pod));
        self.owners.len() != before
    }

    /// Gives back all that the pod had.
    pub(super) fn release(&mut self, pod: &PodUid) -> bool {
        self.owners.remove(pod).is_some()
    }

    /// The file's content, in the form of kubelet's `cpu_manager_state`. Kubelet takes a checksum
    /// of 0 for "none": the file is always whole, as it is replaced in one step.
    pub(super) fn to_file(&self, policy: &str) -> Vec<u8> {
        let entries = self.owners.iter().map(|(pod, containers)| {
            let all = containers
                .iter()
                .map(|(name, cpus)| (name.clone(), cpus.to_string()));
            (pod.to_string(), all.collect::<BTreeMap<_, _>>())
        });
        let entries = entries.collect::<BTreeMap<_, _>>();
        let file = json!({
            "policyName": policy,
            "defaultCpuSet": self.shared().to_string(),
            "entries": entries,
            "checksum": 0,
        });
        file.to_string().into_bytes()
    }

    /// Takes over what a file says, as far as it fits this machine. False: it is of no use.
    pub(super) fn take_file(&mut self, content: &[u8], policy: &str) -> bool {
        let Ok(file) = serde_json::from_slice::<Value>(content) else {
            return false;
        };
        if file["policyName"] != policy {
            return false;
        }
        let mut left = self.shared();
        let pods = file["entries"].as_object().into_iter().flatten();
        for (pod, containers) in pods {
            let mut own = Containers::new();
            for (name, cpus) in containers.as_object().into_iter().flatten() {
                let cpus: CpuSet = match cpus.as_str().unwrap_or_default().parse() {
                    Ok(cpus) => cpus,
                    Err(_) => return false,
                };
                if !cpus.without(&left).is_empty() {
                    // A CPU that is gone, or that two have: nothing of the file is to be trusted.
                    self.owners.clear();
                    return false;
                }
                left = left.without(&cpus);
                own.insert(name.clone(), cpus);
            }
            self.owners.insert(pod.as_str().into(), own);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn machine(count: u32) -> Vec<Cpu> {
        let cpu = |id| Cpu {
            id,
            core: id / 2,
            socket: 0,
        };
        (0..count).map(cpu).collect()
    }

    fn state() -> CpuState {
        CpuState::new(machine(8), [0].into_iter().collect())
    }

    #[test]
    fn the_file_is_kubelets_and_is_read_back() {
        let mut first = state();
        let wanted = [("main".to_owned(), 2)];
        assert_eq!(first.assign(&"u1".into(), &wanted), Ok(true));
        assert_eq!(first.assign(&"u1".into(), &wanted), Ok(false));
        let text = String::from_utf8(first.to_file("static")).unwrap();
        assert_eq!(
            text,
            r#"{"checksum":0,"defaultCpuSet":"0-1,4-7","entries":{"u1":{"main":"2-3"}},"#
                .to_owned()
                + r#""policyName":"static"}"#
        );
        let mut second = state();
        assert!(second.take_file(text.as_bytes(), "static"));
        assert_eq!(first, second);
        assert!(!state().take_file(text.as_bytes(), "none"));
        let twice = text.replace(r#""main":"2-3""#, r#""main":"2-3","b":"3""#);
        assert!(!state().take_file(twice.as_bytes(), "static"));
    }

    #[test]
    fn reserved_cpus_are_shared_and_never_given_away() {
        let mut state = state();
        let all = [("main".to_owned(), 8)];
        assert_eq!(
            state.assign(&"u1".into(), &all).unwrap_err().to_string(),
            "not enough cpus available to satisfy request: requested=8, available=7"
        );
        state
            .assign(&"u1".into(), &[("main".to_owned(), 7)])
            .unwrap();
        assert_eq!(state.shared().to_string(), "0");
    }

    proptest! {
        #[test]
        fn no_cpu_is_given_away_twice_and_all_come_back(
            steps in prop::collection::vec((0_u8..5, 0_usize..4, any::<bool>()), 0..40)
        ) {
            let mut state = state();
            for (pod, count, takes) in steps {
                let uid = PodUid::from(format!("u{pod}"));
                if takes {
                    state.assign(&uid, &[("a".to_owned(), count), ("b".to_owned(), 1)]).ok();
                } else {
                    state.release(&uid);
                }
                let owned = state.owners.values().flat_map(BTreeMap::values);
                let count: usize = owned.map(CpuSet::len).sum();
                prop_assert_eq!(count, state.exclusive().len(), "one CPU, one owner");
                prop_assert_eq!(count + state.shared().len(), 8);
                prop_assert!(state.shared().0.contains(&0));
            }
            for pod in 0..5 {
                state.release(&PodUid::from(format!("u{pod}")));
            }
            prop_assert_eq!(state.shared().len(), 8);
        }
    }
}
