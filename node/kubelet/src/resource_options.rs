//! What a configuration says of the node's resources.

use std::time::Duration;

use crate::cpu_manager::CpuManagerOptions;
use crate::eviction::EvictionOptions;
use crate::node_shutdown::ShutdownOptions;
use crate::node_status::Amount;

/// How the node shares out what it has.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceOptions {
    /// `systemReserved`.
    pub system_reserved: Amount,
    /// `kubeReserved`.
    pub kube_reserved: Amount,
    /// `enforceNodeAllocatable` names `pods`: all pods together are limited to what is allocatable.
    pub enforce_pods: bool,
    /// `podPidsLimit`; `None`: as many as the kernel lets them.
    pub pod_pids_max: Option<i64>,
    /// Eviction.
    pub eviction: EvictionOptions,
    /// Exclusive CPUs.
    pub cpu_manager: CpuManagerOptions,
    /// What happens to pods when the machine is switched off.
    pub shutdown: ShutdownOptions,
    /// How long the shares of the pods' classes may lag behind their pods.
    pub class_shares_delay: Duration,
}

/// A weight is no promise to the millisecond; a thousand pods that come together cost one write.
const CLASS_SHARES_DELAY: Duration = Duration::from_secs(1);

impl Default for ResourceOptions {
    fn default() -> Self {
        Self {
            system_reserved: Amount::default(),
            kube_reserved: Amount::default(),
            enforce_pods: true,
            pod_pids_max: None,
            eviction: EvictionOptions::default(),
            cpu_manager: CpuManagerOptions::default(),
            shutdown: ShutdownOptions::default(),
            class_shares_delay: CLASS_SHARES_DELAY,
        }
    }
}

impl ResourceOptions {
    /// What pods must leave alone: the system, the node's own agents, and what hard eviction
    /// thresholds keep free.
    pub fn reserved(&self, capacity: &Amount) -> Amount {
        let all = [
            self.system_reserved,
            self.kube_reserved,
            self.eviction.reserved(capacity),
        ];
        all.into_iter().fold(Amount::default(), |sum, one| Amount {
            cpu_milli: sum.cpu_milli.saturating_add(one.cpu_milli),
            memory_bytes: sum.memory_bytes.saturating_add(one.memory_bytes),
            ephemeral_storage_bytes: sum
                .ephemeral_storage_bytes
                .saturating_add(one.ephemeral_storage_bytes),
        })
    }
}
