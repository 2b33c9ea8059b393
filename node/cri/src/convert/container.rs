//! A container as CRI wants it.

use k8s_cri::v1 as cri;
use swiftlet_model::runtime::{
    ContainerConfig, ContainerSecurity, LinuxResources, Mount, MountPropagation, NamespaceOptions,
    SandboxConfig, SecurityProfile,
};

use super::security::{groups_policy, profile, selinux};
use super::{int64, map, sandbox};

/// Files of the kernel that an unprivileged container cannot see.
/// Source: `defaultMaskedPaths` in `pkg/securitycontext/util.go` of Kubernetes.
const MASKED_PATHS: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];

/// Files of the kernel that an unprivileged container cannot write.
/// Source: `defaultReadonlyPaths` in the same file.
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The container's configuration in its pod.
pub(crate) fn config(container: &ContainerConfig, pod: &SandboxConfig) -> cri::ContainerConfig {
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: container.name.to_string(),
            attempt: container.attempt,
        }),
        image: Some(cri::ImageSpec {
            image: container.image.clone(),
            user_specified_image: container.image.clone(),
            ..cri::ImageSpec::default()
        }),
        command: container.command.clone(),
        args: container.args.clone(),
        working_dir: container.working_dir.clone(),
        envs: container.env.iter().map(key_value).collect(),
        mounts: container.mounts.iter().map(mount).collect(),
        labels: map(&container.labels),
        annotations: map(&container.annotations),
        log_path: container.log_path.clone(),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        linux: Some(cri::LinuxContainerConfig {
            resources: Some(resources(&container.resources)),
            security_context: Some(security(&container.security, pod.namespaces)),
        }),
        ..cri::ContainerConfig::default()
    }
}

fn key_value((key, value): &(String, String)) -> cri::KeyValue {
    cri::KeyValue {
        key: key.clone(),
        value: value.clone(),
    }
}

fn mount(mount: &Mount) -> cri::Mount {
    let propagation = match mount.propagation {
        MountPropagation::None => cri::MountPropagation::PropagationPrivate,
        MountPropagation::HostToContainer => cri::MountPropagation::PropagationHostToContainer,
        MountPropagation::Bidirectional => cri::MountPropagation::PropagationBidirectional,
    };
    cri::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.display().to_string(),
        readonly: mount.read_only,
        recursive_read_only: mount.recursive_read_only,
        selinux_relabel: false,
        propagation: propagation.into(),
        ..cri::Mount::default()
    }
}

pub(crate) fn resources(limits: &LinuxResources) -> cri::LinuxContainerResources {
    // A period without a quota limits nothing, but some runtimes refuse it.
    let cpu_period = if limits.cpu_quota_us == 0 {
        0
    } else {
        limits.cpu_period_us
    };
    cri::LinuxContainerResources {
        cpu_period,
        cpu_quota: limits.cpu_quota_us,
        cpu_shares: limits.cpu_shares,
        memory_limit_in_bytes: limits.memory_limit_bytes,
        oom_score_adj: limits.oom_score_adj,
        cpuset_cpus: limits.cpuset_cpus.clone(),
        cpuset_mems: limits.cpuset_mems.clone(),
        hugepage_limits: limits.hugepage_limits.iter().map(hugepages).collect(),
        unified: map(&limits.unified),
        memory_swap_limit_in_bytes: limits.memory_swap_limit_bytes,
    }
}

fn hugepages((size, limit): (&String, &u64)) -> cri::HugepageLimit {
    cri::HugepageLimit {
        page_size: size.clone(),
        limit: *limit,
    }
}

/// `pod` are the sandbox's namespaces: the runtime refuses a container that differs from them.
fn security(
    container: &ContainerSecurity,
    pod: NamespaceOptions,
) -> cri::LinuxContainerSecurityContext {
    let paths = |paths: &[&str]| {
        let open = container.privileged || container.proc_unmasked;
        let paths = if open { &[] } else { paths };
        paths.iter().map(|&path| path.to_owned()).collect()
    };
    let seccomp = container.seccomp.as_ref();
    let app_armor = container.app_armor.as_ref();
    cri::LinuxContainerSecurityContext {
        capabilities: Some(cri::Capability {
            add_capabilities: container.add_capabilities.clone(),
            drop_capabilities: container.drop_capabilities.clone(),
            ..cri::Capability::default()
        }),
        privileged: container.privileged,
        namespace_options: Some(namespaces(container, pod)),
        selinux_options: container.selinux.as_ref().map(selinux),
        run_as_user: int64(container.run_as_user),
        run_as_group: int64(container.run_as_group),
        readonly_rootfs: container.read_only_rootfs,
        supplemental_groups: container.supplemental_groups.clone(),
        supplemental_groups_policy: groups_policy(container.supplemental_groups_strict),
        no_new_privs: container.no_new_privileges,
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READONLY_PATHS),
        // Without a profile: kubelet's default, unless its `seccompDefault` is set.
        seccomp: Some(profile(seccomp.unwrap_or(&SecurityProfile::Unconfined))),
        apparmor: app_armor.map(profile),
        ..cri::LinuxContainerSecurityContext::default()
    }
}

/// The sandbox's namespaces, and the processes of a container that this one is to look into.
fn namespaces(container: &ContainerSecurity, pod: NamespaceOptions) -> cri::NamespaceOption {
    let mut options = sandbox::namespaces(pod);
    // In the host's or the pod's process namespace all others are seen anyway
    // (`applyPlatformSpecificContainerConfig` in kuberuntime_container_linux.go).
    if let (cri::NamespaceMode::Container, Some(target)) = (options.pid(), &container.target) {
        options.pid = cri::NamespaceMode::Target.into();
        options.target_id = target.to_string();
    }
    options
}

#[cfg(test)]
mod tests {
    use k8s_cri::v1::security_profile::ProfileType;
    use swiftlet_model::ids::ContainerName;
    use swiftlet_model::runtime::SeLinux;

    use super::super::sandbox::tests::plain as plain_sandbox;
    use super::*;

    fn plain() -> ContainerConfig {
        ContainerConfig {
            name: ContainerName::from("main"),
            attempt: 2,
            image: "registry.local/busybox:1.35".into(),
            command: vec!["sh".into()],
            args: vec!["-c".into(), "exit 7".into()],
            working_dir: String::new(),
            env: vec![("B".into(), "1".into()), ("A".into(), "2".into())],
            mounts: Vec::new(),
            labels: std::collections::BTreeMap::default(),
            annotations: std::collections::BTreeMap::default(),
            log_path: "main/2.log".into(),
            stdin: false,
            stdin_once: false,
            tty: false,
            resources: LinuxResources::default(),
            security: ContainerSecurity::default(),
        }
    }

    fn security_of(
        container: &ContainerConfig,
        pod: &SandboxConfig,
    ) -> cri::LinuxContainerSecurityContext {
        config(container, pod)
            .linux
            .unwrap()
            .security_context
            .unwrap()
    }

    #[test]
    fn environment_keeps_its_order() {
        let envs = config(&plain(), &plain_sandbox()).envs;
        let keys: Vec<_> = envs.iter().map(|env| env.key.as_str()).collect();
        assert_eq!(keys, ["B", "A"]);
    }

    #[test]
    fn a_containers_namespaces_equal_its_sandboxes() {
        let mut pod = plain_sandbox();
        pod.namespaces.host_network = true;
        pod.namespaces.share_process_namespace = true;
        let options = security_of(&plain(), &pod).namespace_options.unwrap();
        assert_eq!(options.network(), cri::NamespaceMode::Node);
        assert_eq!(options.pid(), cri::NamespaceMode::Pod);
    }

    #[test]
    fn kernel_files_are_hidden_unless_the_container_is_privileged() {
        let mut container = plain();
        let hidden = security_of(&container, &plain_sandbox());
        assert!(hidden.masked_paths.iter().any(|path| path == "/proc/kcore"));
        assert!(hidden.readonly_paths.iter().any(|path| path == "/proc/sys"));
        container.security.privileged = true;
        let open = security_of(&container, &plain_sandbox());
        assert!(open.masked_paths.is_empty() && open.readonly_paths.is_empty());
    }

    #[test]
    fn limits_and_rights_reach_cri() {
        let mut container = plain();
        container.resources = LinuxResources {
            cpu_shares: 512,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
            memory_limit_bytes: 64 << 20,
            oom_score_adj: 1000,
            cpuset_cpus: "0-3".into(),
            cpuset_mems: "1".into(),
            hugepage_limits: [("2MB".to_owned(), 4 << 20)].into(),
            unified: [("memory.high".to_owned(), "9".to_owned())].into(),
            memory_swap_limit_bytes: 65 << 20,
            // The runtime has no word for it: the pod's cgroup bears it.
            pids_limit: 5,
        };
        container.security.add_capabilities = vec!["NET_ADMIN".into()];
        container.security.no_new_privileges = true;
        container.mounts = vec![Mount {
            host_path: "/tmp/x".into(),
            container_path: "/data".into(),
            read_only: true,
            recursive_read_only: true,
            propagation: MountPropagation::Bidirectional,
        }];
        let cri = config(&container, &plain_sandbox());
        assert_eq!(
            cri.mounts[0].propagation(),
            cri::MountPropagation::PropagationBidirectional
        );
        assert!(cri.mounts[0].readonly && !cri.mounts[0].selinux_relabel);
        assert!(cri.mounts[0].recursive_read_only);
        let linux = cri.linux.unwrap();
        let limits = linux.resources.unwrap();
        assert_eq!(
            (limits.cpu_shares, limits.cpu_quota, limits.cpu_period),
            (512, 50_000, 100_000)
        );
        assert_eq!(
            (limits.memory_limit_in_bytes, limits.oom_score_adj),
            (64 << 20, 1000)
        );
        assert_eq!(
            (limits.cpuset_cpus.as_str(), limits.cpuset_mems.as_str()),
            ("0-3", "1")
        );
        let pages = &limits.hugepage_limits[0];
        assert_eq!((pages.page_size.as_str(), pages.limit), ("2MB", 4 << 20));
        assert_eq!(limits.unified["memory.high"], "9");
        assert_eq!(limits.memory_swap_limit_in_bytes, 65 << 20);
        let security = linux.security_context.unwrap();
        assert_eq!(
            security.capabilities.unwrap().add_capabilities,
            ["NET_ADMIN"]
        );
        assert!(security.no_new_privs);
    }

    #[test]
    fn profiles_labels_and_groups_reach_cri() {
        let mut container = plain();
        container.security.seccomp = Some(SecurityProfile::Localhost("/p/a.json".into()));
        container.security.app_armor = Some(SecurityProfile::RuntimeDefault);
        container.security.selinux = Some(SeLinux {
            kind: "spc_t".into(),
            ..SeLinux::default()
        });
        container.security.supplemental_groups = vec![5];
        container.security.supplemental_groups_strict = true;
        container.security.run_as_group = Some(6);
        container.security.read_only_rootfs = true;
        let security = security_of(&container, &plain_sandbox());
        assert_eq!(
            security.supplemental_groups_policy(),
            cri::SupplementalGroupsPolicy::Strict
        );
        assert_eq!(security.seccomp.unwrap().localhost_ref, "/p/a.json");
        assert_eq!(
            security.apparmor.unwrap().profile_type(),
            ProfileType::RuntimeDefault
        );
        assert_eq!(security.selinux_options.unwrap().r#type, "spc_t");
        assert_eq!(security.supplemental_groups, [5]);
        assert_eq!(security.run_as_group.unwrap().value, 6);
        assert!(security.readonly_rootfs);
        let bare = security_of(&plain(), &plain_sandbox());
        assert_eq!(
            bare.seccomp.unwrap().profile_type(),
            ProfileType::Unconfined
        );
        assert!(bare.apparmor.is_none() && bare.selinux_options.is_none());
    }

    #[test]
    fn an_unmasked_proc_is_seen_and_written_whole() {
        let mut container = plain();
        container.security.proc_unmasked = true;
        let open = security_of(&container, &plain_sandbox());
        assert!(open.masked_paths.is_empty() && open.readonly_paths.is_empty());
        assert!(!open.privileged);
    }

    #[test]
    fn a_container_looks_into_its_target_unless_it_sees_all_processes_anyway() {
        let mut container = plain();
        container.security.target = Some("abc".into());
        let mut pod = plain_sandbox();
        let options = security_of(&container, &pod).namespace_options.unwrap();
        assert_eq!(options.pid(), cri::NamespaceMode::Target);
        assert_eq!(options.target_id, "abc");
        pod.namespaces.share_process_namespace = true;
        let options = security_of(&container, &pod).namespace_options.unwrap();
        assert_eq!(options.pid(), cri::NamespaceMode::Pod);
        assert_eq!(options.target_id, "");
    }

    #[test]
    fn no_quota_means_no_period() {
        let mut container = plain();
        container.resources.cpu_period_us = 100_000;
        let linux = config(&container, &plain_sandbox()).linux.unwrap();
        assert_eq!(linux.resources.unwrap().cpu_period, 0);
    }
}
