//! The order in which the containers of a pod are stopped. Pure; the rules are those of
//! `pkg/kubelet/kuberuntime/kuberuntime_termination_order.go`.

use k8s_openapi::api::core::v1::PodSpec;
use swiftlet_proto::pod::is_sidecar;

/// Whether it is a container's turn to be stopped, while those run for which `lives` is true:
/// main containers end first and all at once, then the sidecars, the one that was started last
/// before the others. All else is stopped at once.
pub fn may_stop(spec: &PodSpec, name: &str, lives: impl Fn(&str) -> bool) -> bool {
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let mut later = init.iter();
    let Some(container) = later.find(|one| one.name == name) else {
        return true;
    };
    if !is_sidecar(container) {
        return true;
    }
    // What is left in the iterator was started after this one.
    let sidecars = later.filter(|one| is_sidecar(one));
    !spec
        .containers
        .iter()
        .chain(sidecars)
        .any(|one| lives(&one.name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Container;

    use super::*;

    #[test]
    fn main_containers_stop_first_and_then_the_sidecars_from_the_last_to_the_first() {
        let named = |name: &str, policy: Option<&str>| Container {
            name: name.to_owned(),
            restart_policy: policy.map(str::to_owned),
            ..Container::default()
        };
        let spec = PodSpec {
            init_containers: Some(vec![
                named("first", Some("Always")),
                named("once", None),
                named("second", Some("Always")),
            ]),
            containers: vec![named("a", None), named("b", None)],
            ..PodSpec::default()
        };
        let all = ["first", "once", "second", "a", "b", "debug"];
        let turns = |living: &[&str]| -> Vec<&str> {
            let lives = |name: &str| living.contains(&name);
            let turn = |name: &&&str| living.contains(*name) && may_stop(&spec, name, lives);
            all.iter().filter(turn).copied().collect()
        };
        assert_eq!(turns(&all), ["once", "a", "b", "debug"]);
        assert_eq!(turns(&["first", "second", "b"]), ["b"]);
        assert_eq!(turns(&["first", "second"]), ["second"]);
        assert_eq!(turns(&["first"]), ["first"]);
        // An init container that still runs holds nobody up.
        assert_eq!(turns(&["first", "once"]), ["first", "once"]);
    }
}
