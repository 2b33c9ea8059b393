//! `runAsNonRoot`: who the container's first process will be. Pure.
//! Source: `verifyRunAsNonRoot` of `pkg/kubelet/kuberuntime/security_context_others.go`.

use k8s_openapi::api::core::v1::{Container, Pod};
use swiftlet_model::ids::PodKey;
use swiftlet_model::runtime::ImageUser;

/// Why a container that must not run as root does not start, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NonRootError {
    /// The pod says so itself.
    #[error(
        "container's runAsUser breaks non-root policy (pod: \"{pod}\", container: {container})"
    )]
    User {
        /// As `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
    /// The image says so, or nothing.
    #[error(
        "container has runAsNonRoot and image will run as root (pod: \"{pod}\", \
         container: {container})"
    )]
    Image {
        /// As `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
    /// Only the image's own files tell which number the name stands for.
    #[error(
        "container has runAsNonRoot and image has non-numeric user ({user}), cannot verify user \
         is non-root (pod: \"{pod}\", container: {container})"
    )]
    Name {
        /// The image's user.
        user: String,
        /// As `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
}

/// Checks that a container that must not run as root does not.
pub(super) fn verify(
    pod: &Pod,
    container: &Container,
    image_user: &ImageUser,
) -> Result<(), NonRootError> {
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let must = own
        .and_then(|context| context.run_as_non_root)
        .or(of_pod.and_then(|context| context.run_as_non_root));
    if must != Some(true) {
        return Ok(());
    }
    let user = own
        .and_then(|context| context.run_as_user)
        .or(of_pod.and_then(|context| context.run_as_user));
    let key = PodKey::of(pod);
    let pod = format!("{}_{}({})", key.name, key.namespace, key.uid);
    let container = container.name.clone();
    match (user, image_user) {
        (Some(0), _) => Err(NonRootError::User { pod, container }),
        (None, ImageUser::Unset | ImageUser::Uid(0)) => Err(NonRootError::Image { pod, container }),
        (Some(_), _) | (None, ImageUser::Uid(_)) => Ok(()),
        (None, ImageUser::Name(user)) => Err(NonRootError::Name {
            user: user.clone(),
            pod,
            container,
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};

    use super::*;
    use crate::testing::stand::pod;

    fn check(user: Option<i64>, own: Option<bool>, image: &ImageUser) -> Option<String> {
        let mut pod = pod("a");
        let spec = pod.spec.as_mut().unwrap();
        spec.security_context = Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: user,
            ..PodSecurityContext::default()
        });
        spec.containers[0].security_context = Some(SecurityContext {
            run_as_non_root: own,
            ..SecurityContext::default()
        });
        let container = pod.spec.as_ref().unwrap().containers[0].clone();
        verify(&pod, &container, image)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn an_image_that_runs_as_root_is_refused() {
        let words = "container has runAsNonRoot and image will run as root (pod: \"a_default(a)\", \
                     container: main)";
        for image in [ImageUser::Unset, ImageUser::Uid(0)] {
            assert_eq!(check(None, None, &image).as_deref(), Some(words));
        }
        assert_eq!(check(None, None, &ImageUser::Uid(7)), None);
    }

    #[test]
    fn a_name_of_the_image_does_not_show_who_it_is() {
        let nobody = ImageUser::Name("nobody".to_owned());
        let words = check(None, None, &nobody).unwrap();
        assert_eq!(
            words,
            "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify \
             user is non-root (pod: \"a_default(a)\", container: main)"
        );
        assert_eq!(check(Some(7), None, &nobody), None);
    }

    #[test]
    fn the_pods_own_user_counts_before_the_images() {
        assert_eq!(check(Some(7), None, &ImageUser::Unset), None);
        let words = check(Some(0), None, &ImageUser::Uid(7)).unwrap();
        assert!(words.starts_with("container's runAsUser breaks non-root policy (pod: "));
        assert_eq!(check(Some(0), Some(false), &ImageUser::Unset), None);
    }
}
