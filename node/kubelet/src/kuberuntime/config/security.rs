//! Who a container is and what it may do. Pure.
//!
//! A container's own word wins over its pod's
//! (`DetermineEffectiveSecurityContext` of `pkg/securitycontext/util.go`).

use std::path::Path;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, Pod, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext,
};
use swiftlet_model::ids::ContainerId;
use swiftlet_model::runtime::{ContainerSecurity, SeLinux, SecurityProfile};

use super::ConfigError;
use super::sandbox::namespaces;
use crate::options::PodSettings;

/// How AppArmor profiles were written before they were fields: one annotation per container.
const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// The container's security settings. `target`: whose processes an ephemeral container sees.
pub(super) fn security(
    pod: &Pod,
    container: &Container,
    settings: &PodSettings,
    target: Option<ContainerId>,
) -> Result<ContainerSecurity, ConfigError> {
    let spec = pod.spec.clone().unwrap_or_default();
    let of_pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let run_as_user = own.run_as_user.or(of_pod.run_as_user);
    let seccomp = own
        .seccomp_profile
        .as_ref()
        .or(of_pod.seccomp_profile.as_ref());
    let label = own
        .se_linux_options
        .as_ref()
        .or(of_pod.se_linux_options.as_ref());
    let app_armor = app_armor_profile(pod, &container.name, container.security_context.as_ref());
    let capabilities = own.capabilities.clone().unwrap_or_default();
    Ok(ContainerSecurity {
        privileged: is_privileged(&own),
        read_only_rootfs: own.read_only_root_filesystem.unwrap_or_default(),
        no_new_privileges: own.allow_privilege_escalation == Some(false),
        run_as_user,
        run_as_group: own.run_as_group.or(of_pod.run_as_group),
        supplemental_groups: supplemental_groups(&spec),
        supplemental_groups_strict: groups_strict(&spec),
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        namespaces: namespaces(&spec),
        target,
        seccomp: Some(seccomp_profile(seccomp, settings)?),
        app_armor,
        selinux: label.map(selinux),
        proc_unmasked: own.proc_mount.as_deref() == Some("Unmasked"),
    })
}

/// The groups that the pod asks for, and that of its volumes.
pub(super) fn supplemental_groups(spec: &PodSpec) -> Vec<i64> {
    let Some(context) = &spec.security_context else {
        return Vec::new();
    };
    let more = context.supplemental_groups.iter().flatten().copied();
    context.fs_group.into_iter().chain(more).collect()
}

/// Whether the image's own groups do not count.
pub(super) fn groups_strict(spec: &PodSpec) -> bool {
    let context = spec.security_context.as_ref();
    context.is_some_and(|one| one.supplemental_groups_policy.as_deref() == Some("Strict"))
}

/// `privileged: true`.
pub(super) fn is_privileged(context: &SecurityContext) -> bool {
    context.privileged.unwrap_or_default()
}

/// An SELinux label; what is not written is left to the runtime.
pub(super) fn selinux(options: &SELinuxOptions) -> SeLinux {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    SeLinux {
        user: part(&options.user),
        role: part(&options.role),
        kind: part(&options.type_),
        level: part(&options.level),
    }
}

/// A profile of the node is a file below the kubelet's `seccomp` folder
/// (`fieldSeccompProfile` of `pkg/kubelet/kuberuntime/helpers.go`).
fn seccomp_profile(
    written: Option<&SeccompProfile>,
    settings: &PodSettings,
) -> Result<SecurityProfile, ConfigError> {
    let Some(profile) = written else {
        return Ok(if settings.seccomp_default {
            SecurityProfile::RuntimeDefault
        } else {
            SecurityProfile::Unconfined
        });
    };
    match profile.type_.as_str() {
        "RuntimeDefault" => Ok(SecurityProfile::RuntimeDefault),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            if name.is_empty() {
                return Err(ConfigError::NoSeccompProfile);
            }
            let path = settings.seccomp_root.join(Path::new(name));
            Ok(SecurityProfile::Localhost(path.display().to_string()))
        }
        _ => Ok(SecurityProfile::Unconfined),
    }
}

/// The AppArmor profile of a container: its own, its annotation's, or its pod's
/// (`GetProfile` of `pkg/security/apparmor/helpers.go`).
pub fn app_armor_profile(
    pod: &Pod,
    container: &str,
    own: Option<&SecurityContext>,
) -> Option<SecurityProfile> {
    let own = own.and_then(|context| context.app_armor_profile.as_ref());
    let annotations = pod.metadata.annotations.as_ref();
    let annotation = annotations
        .and_then(|all| all.get(&format!("{APP_ARMOR_ANNOTATION}{container}")))
        .and_then(|text| annotated(text));
    let of_pod = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.security_context.as_ref())
        .and_then(|context| context.app_armor_profile.as_ref());
    own.map(field).or(annotation).or_else(|| of_pod.map(field))
}

fn field(profile: &AppArmorProfile) -> SecurityProfile {
    match profile.type_.as_str() {
        "RuntimeDefault" => SecurityProfile::RuntimeDefault,
        "Localhost" => {
            SecurityProfile::Localhost(profile.localhost_profile.clone().unwrap_or_default())
        }
        _ => SecurityProfile::Unconfined,
    }
}

fn annotated(text: &str) -> Option<SecurityProfile> {
    match text {
        "runtime/default" => Some(SecurityProfile::RuntimeDefault),
        "unconfined" => Some(SecurityProfile::Unconfined),
        other => other
            .strip_prefix("localhost/")
            .map(|name| SecurityProfile::Localhost(name.to_owned())),
    }
}

#[cfg(test)]
mod tests;
