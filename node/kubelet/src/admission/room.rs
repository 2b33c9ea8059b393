//! What the pods of this node have been promised, kept as sums: asking costs the same for one pod
//! and for a thousand.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use swiftlet_model::cgroups::QosClass;
use swiftlet_model::ids::{PodKey, PodUid};
use swiftlet_proto::amounts::add;
use swiftlet_proto::pod::{HostPort, host_ports};

use crate::cgroups::qos_class;
use crate::resources::{CPU, Demand, pod_demand};

/// The pods that the node has taken and that have not ended.
#[derive(Clone, Debug, Default)]
pub struct Room {
    pods: HashMap<PodUid, Place>,
    sums: Demand,
    burstable_cpu_milli: i64,
    ports: BTreeSet<(HostPort, PodUid)>,
}

#[derive(Clone, Debug)]
struct Place {
    pod: Arc<Pod>,
    demand: Demand,
    qos: QosClass,
}

impl Room {
    /// Puts a pod in, or its newer object in the place of the older one.
    pub fn take(&mut self, pod: Arc<Pod>) {
        let uid = PodKey::of(&pod).uid;
        self.release(&uid);
        let place = Place {
            demand: pod_demand(&pod),
            qos: qos_class(&pod),
            pod,
        };
        add(&mut self.sums, &place.demand);
        if place.qos == QosClass::Burstable {
            self.burstable_cpu_milli += cpu(&place.demand);
        }
        for port in host_ports(&place.pod) {
            self.ports.insert((port, uid.clone()));
        }
        self.pods.insert(uid, place);
    }

    /// Puts a pod's newer object in the place of the older one; what it is promised stays.
    pub fn renew(&mut self, pod: &Arc<Pod>) {
        if let Some(place) = self.pods.get_mut(&PodKey::of(pod).uid) {
            place.pod = Arc::clone(pod);
        }
    }

    /// Takes a pod out. False if it was not in.
    pub fn release(&mut self, uid: &PodUid) -> bool {
        let Some(place) = self.pods.remove(uid) else {
            return false;
        };
        for (name, amount) in &place.demand {
            if let Some(sum) = self.sums.get_mut(name) {
                *sum -= amount;
            }
        }
        if place.qos == QosClass::Burstable {
            self.burstable_cpu_milli -= cpu(&place.demand);
        }
        for port in host_ports(&place.pod) {
            self.ports.remove(&(port, uid.clone()));
        }
        true
    }

    /// How many pods.
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// Whether this pod is in.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// Its object as it was put in.
    pub fn get(&self, uid: &PodUid) -> Option<&Arc<Pod>> {
        self.pods.get(uid).map(|place| &place.pod)
    }

    /// What this pod is promised.
    pub fn demand(&self, uid: &PodUid) -> Option<&Demand> {
        self.pods.get(uid).map(|place| &place.demand)
    }

    /// All pods.
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        let all = self.pods.values();
        all.map(|place| Arc::clone(&place.pod)).collect()
    }

    /// How much of a resource is promised.
    pub fn used(&self, resource: &str) -> i64 {
        self.sums.get(resource).copied().unwrap_or_default()
    }

    /// CPU that burstable pods are promised together: their class's weight.
    pub fn burstable_cpu_milli(&self) -> i64 {
        self.burstable_cpu_milli
    }

    /// Whether another pod holds a port of the host that this one wants.
    pub fn ports_taken(&self, pod: &Pod) -> bool {
        let own = PodKey::of(pod).uid;
        host_ports(pod).any(|wanted| {
            let from = HostPort {
                ip: String::new(),
                ..wanted.clone()
            };
            let here = self.ports.range((from, PodUid::from(""))..);
            let mut same = here.take_while(|(held, _)| {
                (&held.protocol, held.port) == (&wanted.protocol, wanted.port)
            });
            same.any(|(held, uid)| *uid != own && held.conflicts(&wanted))
        })
    }
}

fn cpu(demand: &Demand) -> i64 {
    demand.get(CPU).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ContainerPort, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use proptest::prelude::*;

    use super::*;
    use crate::testing::stand::pod;

    fn wants(uid: &str, cpu_milli: i64) -> Arc<Pod> {
        let mut pod = pod(uid);
        let requests = [("cpu".to_owned(), Quantity(format!("{cpu_milli}m")))].into();
        pod.spec.as_mut().unwrap().containers[0].resources = Some(ResourceRequirements {
            requests: (cpu_milli > 0).then_some(requests),
            ..ResourceRequirements::default()
        });
        Arc::new(pod)
    }

    fn with_port(uid: &str, ip: Option<&str>) -> Arc<Pod> {
        let mut pod = pod(uid);
        pod.spec.as_mut().unwrap().containers[0].ports = Some(vec![ContainerPort {
            container_port: 80,
            host_port: Some(8080),
            host_ip: ip.map(str::to_owned),
            ..ContainerPort::default()
        }]);
        Arc::new(pod)
    }

    #[test]
    fn a_port_of_the_host_has_one_owner_on_each_address() {
        let mut room = Room::default();
        room.take(with_port("a", Some("10.0.0.1")));
        assert!(!room.ports_taken(&with_port("b", Some("10.0.0.2"))));
        assert!(room.ports_taken(&with_port("b", Some("10.0.0.1"))));
        assert!(room.ports_taken(&with_port("b", None)));
        assert!(!room.ports_taken(&with_port("a", None)), "its own");
        room.release(&"a".into());
        assert!(!room.ports_taken(&with_port("b", None)));
    }

    proptest! {
        #[test]
        fn the_sums_are_what_adding_all_pods_up_gives(
            steps in prop::collection::vec((0_usize..6, 0_i64..3000, any::<bool>()), 0..60)
        ) {
            let mut room = Room::default();
            let mut oracle: HashMap<String, i64> = HashMap::new();
            for (number, cpu_milli, in_or_out) in steps {
                let uid = format!("p{number}");
                if in_or_out {
                    room.take(wants(&uid, cpu_milli));
                    oracle.insert(uid, cpu_milli);
                } else {
                    let was_in = oracle.remove(&uid).is_some();
                    prop_assert_eq!(room.release(&uid.as_str().into()), was_in);
                }
                let sum: i64 = oracle.values().sum();
                prop_assert_eq!(room.used("cpu"), sum);
                prop_assert_eq!(room.burstable_cpu_milli(), sum);
                prop_assert_eq!(room.len(), oracle.len());
            }
        }
    }
}
