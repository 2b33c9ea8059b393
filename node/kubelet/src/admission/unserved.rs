//! Fields of a pod that this node does not serve yet. What a user wrote is never silently ignored.

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, ContainerPort, Pod, PodSecurityContext, PodSpec, SeccompProfile,
    SecurityContext, Volume, VolumeMount,
};

/// Sysctls that do not reach beyond the pod (`pkg/kubelet/sysctl/safe_sysctls.go`).
const SAFE_SYSCTLS: [&str; 9] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_syncookies",
];
/// Kubernetes' default: nobody asked for more.
const TERMINATION_PATH: &str = "/dev/termination-log";
/// Resources of a container that are served; others need a device or a huge page.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Names the fields that this node does not serve, by their paths in the object; empty if it serves
/// all.
pub fn unserved(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else {
        return vec!["spec (missing)".to_owned()];
    };
    let mut found = Found(Vec::new(), spec.host_network.unwrap_or_default());
    found.spec(spec);
    if let Some(context) = &spec.security_context {
        found.pod_security(context);
    }
    for volume in spec.volumes.iter().flatten() {
        found.volume(volume);
    }
    let non_root = spec
        .security_context
        .as_ref()
        .and_then(|one| one.run_as_non_root);
    let user = spec
        .security_context
        .as_ref()
        .and_then(|one| one.run_as_user);
    let init = spec.init_containers.iter().flatten();
    let all = spec.containers.iter().map(|one| ("spec.containers", one));
    for (list, container) in all.chain(init.map(|one| ("spec.initContainers", one))) {
        found.container(&format!("{list}[{}]", container.name), container);
        let own = container.security_context.as_ref();
        let non_root = own.and_then(|one| one.run_as_non_root).or(non_root);
        let user = own.and_then(|one| one.run_as_user).or(user);
        let name = &container.name;
        found.when(
            non_root == Some(true) && user.is_none(),
            &format!("{list}[{name}].securityContext.runAsNonRoot without runAsUser"),
        );
    }
    found.0
}

/// The paths found, and whether the pod lives in the host's network.
struct Found(Vec<String>, bool);

impl Found {
    fn when(&mut self, written: bool, path: &str) {
        if written {
            self.0.push(path.to_owned());
        }
    }

    fn spec(&mut self, spec: &PodSpec) {
        let cluster_dns = spec.dns_policy.as_deref() != Some("None");
        let fields = [
            (
                spec.active_deadline_seconds.is_some(),
                "activeDeadlineSeconds",
            ),
            (
                some(spec.ephemeral_containers.as_ref()),
                "ephemeralContainers",
            ),
            (some(spec.host_aliases.as_ref()), "hostAliases"),
            (spec.host_users == Some(false), "hostUsers: false"),
            (spec.hostname_override.is_some(), "hostnameOverride"),
            (some(spec.image_pull_secrets.as_ref()), "imagePullSecrets"),
            (some(spec.resource_claims.as_ref()), "resourceClaims"),
            (spec.resources.is_some(), "resources"),
            (spec.runtime_class_name.is_some(), "runtimeClassName"),
            (some(spec.scheduling_gates.as_ref()), "schedulingGates"),
            (spec.set_hostname_as_fqdn == Some(true), "setHostnameAsFQDN"),
            (
                spec.subdomain.as_ref().is_some_and(|name| !name.is_empty()),
                "subdomain",
            ),
            (
                spec.dns_config.is_some() && cluster_dns,
                "dnsConfig without dnsPolicy: None",
            ),
            (
                spec.dns_policy.as_deref() == Some("ClusterFirstWithHostNet"),
                "dnsPolicy",
            ),
        ];
        for (written, path) in fields {
            self.when(written, &format!("spec.{path}"));
        }
    }

    fn pod_security(&mut self, context: &PodSecurityContext) {
        let path = "spec.securityContext";
        self.profiles(
            path,
            context.seccomp_profile.as_ref(),
            context.app_armor_profile.as_ref(),
        );
        let fields = [
            (context.se_linux_options.is_some(), "seLinuxOptions"),
            (
                context.se_linux_change_policy.is_some(),
                "seLinuxChangePolicy",
            ),
            (context.windows_options.is_some(), "windowsOptions"),
            (
                context.supplemental_groups_policy.as_deref() == Some("Strict"),
                "supplementalGroupsPolicy: Strict",
            ),
        ];
        for (written, field) in fields {
            self.when(written, &format!("{path}.{field}"));
        }
        for sysctl in context.sysctls.iter().flatten() {
            let name = sysctl.name.replace('/', ".");
            let safe = SAFE_SYSCTLS.contains(&name.as_str());
            self.when(
                !safe,
                &format!("{path}.sysctls[{name}] (not in the safe list)"),
            );
        }
    }

    fn profiles(
        &mut self,
        path: &str,
        seccomp: Option<&SeccompProfile>,
        app_armor: Option<&AppArmorProfile>,
    ) {
        let seccomp = seccomp.is_some_and(|profile| profile.type_ == "Localhost");
        self.when(seccomp, &format!("{path}.seccompProfile: Localhost"));
        // The runtime's default applies where nothing is said; another one cannot be asked for yet.
        let other = app_armor.is_some_and(|profile| profile.type_ != "RuntimeDefault");
        self.when(
            other,
            &format!("{path}.appArmorProfile other than RuntimeDefault"),
        );
    }

    fn volume(&mut self, volume: &Volume) {
        let served = volume.empty_dir.is_some()
            || volume.host_path.is_some()
            || volume.config_map.is_some()
            || volume.secret.is_some();
        if served {
            return;
        }
        // The kind is the one field beside the name.
        let value = serde_json::to_value(volume).unwrap_or_default();
        let mut fields = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field.as_str());
        let kind = fields
            .find(|field| *field != "name")
            .unwrap_or("(no kind)")
            .to_owned();
        self.0.push(format!("spec.volumes[{}].{kind}", volume.name));
    }

    fn container(&mut self, path: &str, container: &Container) {
        let fields = [
            (container.lifecycle.is_some(), "lifecycle"),
            (container.liveness_probe.is_some(), "livenessProbe"),
            (container.readiness_probe.is_some(), "readinessProbe"),
            (container.startup_probe.is_some(), "startupProbe"),
            (container.restart_policy.is_some(), "restartPolicy"),
            (
                other_than(
                    container.termination_message_path.as_ref(),
                    TERMINATION_PATH,
                ),
                "terminationMessagePath",
            ),
            (
                other_than(container.termination_message_policy.as_ref(), "File"),
                "terminationMessagePolicy",
            ),
            (
                some(container.restart_policy_rules.as_ref()),
                "restartPolicyRules",
            ),
            (some(container.volume_devices.as_ref()), "volumeDevices"),
        ];
        for (written, field) in fields {
            self.when(written, &format!("{path}.{field}"));
        }
        for port in container.ports.iter().flatten() {
            self.port(path, port);
        }
        for mount in container.volume_mounts.iter().flatten() {
            self.mount(path, mount);
        }
        for variable in container.env.iter().flatten() {
            let file = variable
                .value_from
                .as_ref()
                .is_some_and(|one| one.file_key_ref.is_some());
            self.when(
                file,
                &format!("{path}.env[{}].valueFrom.fileKeyRef", variable.name),
            );
        }
        self.resources(path, container);
        if let Some(context) = &container.security_context {
            self.security(&format!("{path}.securityContext"), context);
        }
    }

    fn port(&mut self, path: &str, port: &ContainerPort) {
        // In the host's network a port is the host's by itself; the API server writes it down
        // there.
        let mapped = !self.1 && port.host_port.is_some_and(|port| port != 0);
        self.when(mapped, &format!("{path}.ports.hostPort"));
    }

    fn mount(&mut self, path: &str, mount: &VolumeMount) {
        let path = format!("{path}.volumeMounts[{}]", mount.name);
        let written = |text: Option<&String>| text.is_some_and(|text| !text.is_empty());
        self.when(written(mount.sub_path.as_ref()), &format!("{path}.subPath"));
        self.when(
            written(mount.sub_path_expr.as_ref()),
            &format!("{path}.subPathExpr"),
        );
        let recursive = mount.recursive_read_only.as_deref();
        self.when(
            recursive.is_some_and(|policy| policy != "Disabled"),
            &format!("{path}.recursiveReadOnly"),
        );
    }

    fn resources(&mut self, path: &str, container: &Container) {
        let Some(resources) = &container.resources else {
            return;
        };
        let claims = some(resources.claims.as_ref());
        self.when(claims, &format!("{path}.resources.claims"));
        let lists = [
            ("limits", &resources.limits),
            ("requests", &resources.requests),
        ];
        for (list, values) in lists {
            for name in values.iter().flatten().map(|(name, _)| name) {
                let served = RESOURCES.contains(&name.as_str());
                self.when(!served, &format!("{path}.resources.{list}[{name}]"));
            }
        }
    }

    fn security(&mut self, path: &str, context: &SecurityContext) {
        self.profiles(
            path,
            context.seccomp_profile.as_ref(),
            context.app_armor_profile.as_ref(),
        );
        let proc_mount = context.proc_mount.as_deref();
        let fields = [
            (
                proc_mount.is_some_and(|kind| kind != "Default"),
                "procMount",
            ),
            (context.se_linux_options.is_some(), "seLinuxOptions"),
            (context.windows_options.is_some(), "windowsOptions"),
        ];
        for (written, field) in fields {
            self.when(written, &format!("{path}.{field}"));
        }
    }
}

fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|list| !list.is_empty())
}

fn other_than(written: Option<&String>, default: &str) -> bool {
    written.is_some_and(|written| written != default)
}
