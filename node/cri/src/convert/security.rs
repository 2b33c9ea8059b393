//! Profiles, labels and processes of a security context as CRI wants them.

use k8s_cri::v1 as cri;
use k8s_cri::v1::security_profile::ProfileType;
use swiftlet_model::runtime::{SeLinux, SecurityProfile};

/// A seccomp or AppArmor profile.
pub(super) fn profile(profile: &SecurityProfile) -> cri::SecurityProfile {
    let (kind, reference) = match profile {
        SecurityProfile::RuntimeDefault => (ProfileType::RuntimeDefault, String::new()),
        SecurityProfile::Unconfined => (ProfileType::Unconfined, String::new()),
        SecurityProfile::Localhost(reference) => (ProfileType::Localhost, reference.clone()),
    };
    cri::SecurityProfile {
        profile_type: kind.into(),
        localhost_ref: reference,
    }
}

/// An SELinux label.
pub(super) fn selinux(label: &SeLinux) -> cri::SeLinuxOption {
    cri::SeLinuxOption {
        user: label.user.clone(),
        role: label.role.clone(),
        r#type: label.kind.clone(),
        level: label.level.clone(),
    }
}

/// Whose groups a process has beside the pod's.
pub(super) fn groups_policy(strict: bool) -> i32 {
    if strict {
        cri::SupplementalGroupsPolicy::Strict.into()
    } else {
        cri::SupplementalGroupsPolicy::Merge.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_of_the_node_is_named_and_others_are_not() {
        let local = profile(&SecurityProfile::Localhost("/p/a.json".to_owned()));
        assert_eq!(local.profile_type(), ProfileType::Localhost);
        assert_eq!(local.localhost_ref, "/p/a.json");
        for (kind, expected) in [
            (SecurityProfile::RuntimeDefault, ProfileType::RuntimeDefault),
            (SecurityProfile::Unconfined, ProfileType::Unconfined),
        ] {
            assert_eq!(profile(&kind).profile_type(), expected);
            assert_eq!(profile(&kind).localhost_ref, "");
        }
    }

    #[test]
    fn a_label_keeps_all_its_parts() {
        let label = selinux(&SeLinux {
            user: "u".to_owned(),
            role: "r".to_owned(),
            kind: "t".to_owned(),
            level: "s0:c1,c2".to_owned(),
        });
        let parts = [&label.user, &label.role, &label.r#type, &label.level];
        assert_eq!(parts, ["u", "r", "t", "s0:c1,c2"]);
    }

    #[test]
    fn groups_are_merged_unless_the_pod_is_strict() {
        assert_eq!(
            groups_policy(true),
            i32::from(cri::SupplementalGroupsPolicy::Strict)
        );
        assert_eq!(
            groups_policy(false),
            i32::from(cri::SupplementalGroupsPolicy::Merge)
        );
    }
}
