//! Whether a container is started again after its end: the pod's policy, the container's own, and
//! its rules. The rules are those of `pkg/api/v1/pod/util.go`.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod, PodSpec};

/// `restartPolicy` of a pod or a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Whatever the exit code.
    Always,
    /// After an exit code other than zero.
    OnFailure,
    /// Not at all.
    Never,
}

impl RestartPolicy {
    /// The pod's policy; `Always` is the API's default.
    pub fn of(pod: &Pod) -> Self {
        pod.spec.as_ref().map_or(Self::Always, Self::of_spec)
    }

    /// The policy of a pod's spec.
    pub fn of_spec(spec: &PodSpec) -> Self {
        let written = spec.restart_policy.as_deref();
        written.and_then(Self::named).unwrap_or(Self::Always)
    }

    /// The policy by its name.
    fn named(name: &str) -> Option<Self> {
        match name {
            "Always" => Some(Self::Always),
            "OnFailure" => Some(Self::OnFailure),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Whether a container that ended with `code` is started again.
    pub fn restarts(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// Whether this container is started again after it has ended with `code`: its rules come first,
/// then its own policy, then the pod's.
pub fn restarts(spec: &PodSpec, container: &Container, code: i32) -> bool {
    let own = container.restart_policy.as_deref();
    if own.is_some() {
        let mut rules = container.restart_policy_rules.iter().flatten();
        let first = rules.find(|rule| applies(rule, code));
        if first.is_some_and(|rule| rule.action == "Restart") {
            return true;
        }
    }
    let own = own.and_then(RestartPolicy::named);
    own.unwrap_or_else(|| RestartPolicy::of_spec(spec))
        .restarts(code)
}

/// Whether there is an end after which this container is started again.
pub fn may_restart(spec: &PodSpec, container: &Container) -> bool {
    let rules = container.restart_policy_rules.as_ref();
    let own = container.restart_policy.as_deref();
    if own.is_some() && rules.is_some_and(|rules| !rules.is_empty()) {
        return true;
    }
    let own = own.and_then(RestartPolicy::named);
    own.unwrap_or_else(|| RestartPolicy::of_spec(spec)) != RestartPolicy::Never
}

fn applies(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else {
        return false;
    };
    let listed = codes.values.iter().flatten().any(|one| *one == code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;

    fn spec(policy: &str) -> PodSpec {
        PodSpec {
            restart_policy: Some(policy.to_owned()),
            ..PodSpec::default()
        }
    }

    fn container(policy: Option<&str>, rules: &[(&str, &[i32])]) -> Container {
        let rule = |(operator, values): &(&str, &[i32])| ContainerRestartRule {
            action: "Restart".to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: (*operator).to_owned(),
                values: Some(values.to_vec()),
            }),
        };
        Container {
            restart_policy: policy.map(str::to_owned),
            restart_policy_rules: Some(rules.iter().map(rule).collect()),
            ..Container::default()
        }
    }

    #[test]
    fn a_containers_rules_come_before_its_policy_and_that_before_the_pods() {
        for (pod, own, rules, code, expected) in [
            ("Never", None, &[][..], 1, false),
            ("Never", Some("OnFailure"), &[], 1, true),
            ("Never", Some("OnFailure"), &[], 0, false),
            ("Always", Some("Never"), &[], 1, false),
            ("Always", Some("Never"), &[("In", &[42][..])], 42, true),
            ("Always", Some("Never"), &[("In", &[42][..])], 1, false),
            ("Never", Some("Never"), &[("NotIn", &[0][..])], 7, true),
            ("Never", Some("Never"), &[("NotIn", &[0][..])], 0, false),
            // Without a policy of its own a container has no rules.
            ("Never", None, &[("In", &[42][..])], 42, false),
        ] {
            let container = container(own, rules);
            let found = restarts(&spec(pod), &container, code);
            assert_eq!(found, expected, "{pod} {own:?} {rules:?} {code}");
            assert!(!found || may_restart(&spec(pod), &container));
        }
    }
}
