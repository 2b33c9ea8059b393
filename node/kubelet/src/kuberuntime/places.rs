//! Where the things lie on the node that one container mounts, beside its whole volumes. Rules:
//! `makeMounts` in `pkg/kubelet/kubelet_pods.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use swiftlet_model::ids::PodKey;
use swiftlet_model::volumes::{SubPath, VolumeError};

use crate::kuberuntime::config::{ConfigError, host_network};
use crate::kuberuntime::execute::{Answer, Call, CreateCall, CreateError};
use crate::kuberuntime::expand::expand_with;
use crate::kuberuntime::hosts;
use crate::shared::Shared;

/// What one container mounts, beside its whole volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Parts of volumes, by the index of their mount.
    pub sub_paths: BTreeMap<usize, PathBuf>,
    /// What it sees as `/etc/hosts`.
    pub hosts: Option<PathBuf>,
    /// What it sees as its `terminationMessagePath`.
    pub termination: Option<PathBuf>,
}

/// Makes the parts of volumes and the file for last words.
pub(crate) async fn places(
    shared: &Shared,
    call: &CreateCall,
    variables: impl Fn() -> Result<BTreeMap<String, String>, ConfigError>,
) -> Result<Places, CreateError> {
    let pod = PodKey::of(&call.pod).uid;
    let container = &call.made.container;
    let parts = sub_paths(container, &call.volumes, variables)?;
    let parts = parts.iter().map(|part| async {
        let place = shared.doors.volumes.sub_path(&pod, part).await?;
        Ok((part.index, place))
    });
    let files = &shared.doors.files;
    let termination = async {
        let path = container.termination_message_path.as_deref();
        match path.filter(|path| !path.is_empty()) {
            Some(_) => {
                let made = files.termination_log(&pod, &container.name, call.made.attempt);
                made.await.map(Some)
            }
            None => Ok(None),
        }
    };
    let made = futures::future::try_join(try_join_all(parts), termination).await;
    let (parts, termination) = made.inspect_err(|error| {
        if let VolumeError::SubPath { cause, .. } = error {
            tracing::warn!(pod = %call.pod.metadata.name.as_deref().unwrap_or_default(),
                container = container.name, cause, "subPath cannot be mounted");
        }
    })?;
    Ok(Places {
        sub_paths: parts.into_iter().collect(),
        hosts: Some(files.hosts_path(&pod)),
        termination,
    })
}

/// The parts of volumes that the container mounts.
fn sub_paths(
    container: &Container,
    volumes: &BTreeMap<String, PathBuf>,
    variables: impl Fn() -> Result<BTreeMap<String, String>, ConfigError>,
) -> Result<Vec<SubPath>, ConfigError> {
    let mut all = Vec::new();
    let mounts = container.volume_mounts.iter().flatten();
    for (index, mount) in mounts.enumerate() {
        let Some(sub_path) = sub_path(mount, &variables)? else {
            continue;
        };
        let path = volumes.get(&mount.name);
        let path = path.ok_or_else(|| ConfigError::NoVolume(mount.name.clone()))?;
        all.push(SubPath {
            volume: mount.name.clone(),
            path: path.clone(),
            container: container.name.clone(),
            index,
            sub_path,
        });
    }
    Ok(all)
}

/// The part of the volume, if it is not the whole; its variables must have values.
fn sub_path(
    mount: &VolumeMount,
    variables: &impl Fn() -> Result<BTreeMap<String, String>, ConfigError>,
) -> Result<Option<String>, ConfigError> {
    let written = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let Some(text) = written(&mount.sub_path_expr) else {
        return Ok(written(&mount.sub_path));
    };
    let variables = variables()?;
    let mut missing = BTreeSet::new();
    let expanded = expand_with(&text, |name| {
        let value = variables.get(name).filter(|value| !value.is_empty());
        if value.is_none() {
            missing.insert(name.to_owned());
        }
        value.cloned()
    });
    if missing.is_empty() {
        return Ok(Some(expanded).filter(|text| !text.is_empty()));
    }
    let names: Vec<_> = missing.into_iter().collect();
    Err(ConfigError::SubPathExpr(names.join(", ")))
}

/// Writes the pod's `/etc/hosts`; these are its addresses.
pub(crate) fn hosts(shared: &Arc<Shared>, pod: Arc<Pod>, ips: Vec<String>) -> Call<Answer> {
    let shared = Arc::clone(shared);
    Box::pin(async move {
        let files = &shared.doors.files;
        let written = async {
            let node = if host_network(&pod) {
                files.node_hosts().await?
            } else {
                String::new()
            };
            let domain = &shared.pods.cluster_domain;
            let content = hosts::content(&pod, &ips, domain, &node);
            files.hosts_file(&PodKey::of(&pod).uid, &content).await
        };
        let written = written.await.map(drop);
        Answer::Hosts(ips, written)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(sub_path: Option<&str>, expression: Option<&str>) -> VolumeMount {
        VolumeMount {
            name: "v".into(),
            sub_path: sub_path.map(ToOwned::to_owned),
            sub_path_expr: expression.map(ToOwned::to_owned),
            ..VolumeMount::default()
        }
    }

    fn parts(mounts: Vec<VolumeMount>) -> Result<Vec<(usize, String)>, ConfigError> {
        let container = Container {
            name: "main".into(),
            volume_mounts: Some(mounts),
            ..Container::default()
        };
        let volumes = [("v".into(), "/host/v".into())].into();
        let values = [("POD", "web"), ("EMPTY", "")];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let parts = sub_paths(&container, &volumes, || Ok(values.clone().into()))?;
        Ok(parts
            .into_iter()
            .map(|one| (one.index, one.sub_path))
            .collect())
    }

    #[test]
    fn only_mounts_of_a_part_are_parts_and_their_variables_have_values() {
        let whole = mount(None, None);
        let all = vec![
            whole,
            mount(Some("a/b"), None),
            mount(None, Some("logs/$(POD)")),
        ];
        let expected = [(1, "a/b".to_owned()), (2, "logs/web".to_owned())];
        assert_eq!(parts(all).unwrap(), expected);
        let error = parts(vec![mount(None, Some("$(POD)/$(NOT)/$(EMPTY)"))]).unwrap_err();
        assert_eq!(error.to_string(), "missing value for EMPTY, NOT");
    }

    #[test]
    fn what_is_no_variable_stays_as_it_is_written() {
        let all = parts(vec![mount(None, Some("$$(POD)-$POD"))]).unwrap();
        assert_eq!(all, [(0, "$(POD)-$POD".to_owned())]);
    }
}
