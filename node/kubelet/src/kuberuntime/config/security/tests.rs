use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext};

use super::*;
use crate::testing::stand::pod;

fn made(
    of_pod: PodSecurityContext,
    own: SecurityContext,
) -> Result<ContainerSecurity, ConfigError> {
    let mut pod = pod("a");
    let spec = pod.spec.as_mut().unwrap();
    spec.security_context = Some(of_pod);
    spec.containers[0].security_context = Some(own);
    let container = spec.containers[0].clone();
    let settings = PodSettings {
        seccomp_root: "/var/lib/x/seccomp".into(),
        ..PodSettings::default()
    };
    security(&pod, &container, &settings, None)
}

fn seccomp(kind: &str, name: Option<&str>) -> SeccompProfile {
    SeccompProfile {
        type_: kind.into(),
        localhost_profile: name.map(str::to_owned),
    }
}

fn armor(kind: &str, name: Option<&str>) -> AppArmorProfile {
    AppArmorProfile {
        type_: kind.into(),
        localhost_profile: name.map(str::to_owned),
    }
}

#[test]
fn a_containers_own_word_wins_over_its_pods() {
    let of_pod = PodSecurityContext {
        run_as_user: Some(1),
        run_as_group: Some(2),
        seccomp_profile: Some(seccomp("RuntimeDefault", None)),
        se_linux_options: Some(SELinuxOptions {
            user: Some("pod".into()),
            ..SELinuxOptions::default()
        }),
        fs_group: Some(9),
        supplemental_groups: Some(vec![10, 11]),
        supplemental_groups_policy: Some("Strict".into()),
        ..PodSecurityContext::default()
    };
    let plain = made(of_pod.clone(), SecurityContext::default()).unwrap();
    assert_eq!((plain.run_as_user, plain.run_as_group), (Some(1), Some(2)));
    assert_eq!(plain.seccomp, Some(SecurityProfile::RuntimeDefault));
    assert_eq!(plain.selinux.unwrap().user, "pod");
    assert_eq!(plain.supplemental_groups, [9, 10, 11]);
    assert!(plain.supplemental_groups_strict);
    let own = SecurityContext {
        run_as_user: Some(3),
        run_as_group: Some(4),
        seccomp_profile: Some(seccomp("Unconfined", None)),
        se_linux_options: Some(SELinuxOptions {
            type_: Some("own".into()),
            ..SELinuxOptions::default()
        }),
        ..SecurityContext::default()
    };
    let other = made(of_pod, own).unwrap();
    assert_eq!((other.run_as_user, other.run_as_group), (Some(3), Some(4)));
    assert_eq!(other.seccomp, Some(SecurityProfile::Unconfined));
    let label = other.selinux.unwrap();
    assert_eq!((label.user.as_str(), label.kind.as_str()), ("", "own"));
}

#[test]
fn what_a_container_may_do_is_passed_on() {
    let own = SecurityContext {
        privileged: Some(true),
        read_only_root_filesystem: Some(true),
        proc_mount: Some("Unmasked".into()),
        capabilities: Some(Capabilities {
            add: Some(vec!["NET_ADMIN".into()]),
            drop: Some(vec!["ALL".into()]),
        }),
        ..SecurityContext::default()
    };
    let made = made(PodSecurityContext::default(), own).unwrap();
    assert!(made.privileged && made.read_only_rootfs && made.proc_unmasked);
    assert_eq!(made.add_capabilities, ["NET_ADMIN"]);
    assert_eq!(made.drop_capabilities, ["ALL"]);
}

#[test]
fn privileges_can_grow_unless_the_container_forbids_it() {
    for (written, expected) in [(None, false), (Some(true), false), (Some(false), true)] {
        let own = SecurityContext {
            allow_privilege_escalation: written,
            ..SecurityContext::default()
        };
        let made = made(PodSecurityContext::default(), own).unwrap();
        assert_eq!(made.no_new_privileges, expected);
    }
}

#[test]
fn a_seccomp_profile_of_the_node_lies_in_the_kubelets_folder() {
    let own = |profile| SecurityContext {
        seccomp_profile: profile,
        ..SecurityContext::default()
    };
    let local = made(
        PodSecurityContext::default(),
        own(Some(seccomp("Localhost", Some("a/b.json")))),
    );
    assert_eq!(
        local.unwrap().seccomp,
        Some(SecurityProfile::Localhost(
            "/var/lib/x/seccomp/a/b.json".into()
        ))
    );
    let nameless = made(
        PodSecurityContext::default(),
        own(Some(seccomp("Localhost", None))),
    );
    assert_eq!(nameless, Err(ConfigError::NoSeccompProfile));
}

#[test]
fn without_a_profile_there_is_no_filter_unless_the_node_wants_one() {
    for (wanted, expected) in [
        (false, SecurityProfile::Unconfined),
        (true, SecurityProfile::RuntimeDefault),
    ] {
        let settings = PodSettings {
            seccomp_default: wanted,
            ..PodSettings::default()
        };
        let pod = pod("a");
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let made = security(&pod, container, &settings, None).unwrap();
        assert_eq!(made.seccomp, Some(expected));
    }
}

#[test]
fn an_app_armor_profile_is_the_containers_the_annotations_or_the_pods() {
    let mut pod = pod("a");
    let context = |profile| SecurityContext {
        app_armor_profile: profile,
        ..SecurityContext::default()
    };
    assert_eq!(app_armor_profile(&pod, "main", None), None);
    pod.spec.as_mut().unwrap().security_context = Some(PodSecurityContext {
        app_armor_profile: Some(armor("Unconfined", None)),
        ..PodSecurityContext::default()
    });
    assert_eq!(
        app_armor_profile(&pod, "main", None),
        Some(SecurityProfile::Unconfined)
    );
    let key = "container.apparmor.security.beta.kubernetes.io/main".to_owned();
    for (text, expected) in [
        ("runtime/default", SecurityProfile::RuntimeDefault),
        ("unconfined", SecurityProfile::Unconfined),
        ("localhost/mine", SecurityProfile::Localhost("mine".into())),
    ] {
        pod.metadata.annotations = Some([(key.clone(), text.to_owned())].into());
        assert_eq!(app_armor_profile(&pod, "main", None), Some(expected));
    }
    let own = context(Some(armor("Localhost", Some("own"))));
    assert_eq!(
        app_armor_profile(&pod, "main", Some(&own)),
        Some(SecurityProfile::Localhost("own".into()))
    );
}
