//! Volumes whose files the node writes: where each file comes from. Pure.

use k8s_openapi::api::core::v1::{
    DownwardAPIVolumeFile, KeyToPath, ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use swiftlet_model::control_plane::{ObjectRef, RefKind};
use swiftlet_model::volumes::VolumeError;

/// Mode of the files where nothing is said. Source: the API's defaults.
const FILE_MODE_DEFAULT: i32 = 0o644;
/// How long a token is valid where nothing is said, in seconds. Source: the API's defaults.
const TOKEN_EXPIRATION_S_DEFAULT: i64 = 3600;
/// Bits that a mode may have: the API refuses others.
const MODE_BITS: u32 = 0o777;

/// A volume of files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Files {
    /// The folder of the volume's kind, as kubelet escapes its plugins' names.
    pub(crate) plugin: &'static str,
    /// The files never touch a disk.
    pub(crate) in_memory: bool,
    /// Mode of files without one of their own.
    pub(crate) mode: u32,
    /// Where the files come from; of two with the same path the later one is seen.
    pub(crate) sources: Vec<Source>,
}

/// Where files come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    /// A ConfigMap or Secret.
    Object(Object),
    /// The pod itself.
    Downward(Vec<DownwardAPIVolumeFile>),
    /// A token of the pod's service account.
    Token(TokenFile),
}

/// Which files of an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    /// The object.
    pub(crate) reference: ObjectRef,
    /// The object, or a key in `items`, may be missing.
    pub(crate) optional: bool,
    /// Keys with their paths; `None` means all keys, each under its own name.
    pub(crate) items: Option<Vec<Item>>,
}

/// One key and where its file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) path: String,
    pub(crate) mode: Option<u32>,
}

/// A token and where its file goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenFile {
    pub(crate) audience: String,
    pub(crate) expiration_s: i64,
    pub(crate) path: String,
}

/// The volume as files; `None` if it is of another kind.
pub(crate) fn of_volume(namespace: &str, volume: &Volume) -> Result<Option<Files>, VolumeError> {
    // Where each kind lies is what the plugins' `wrappedVolumeSpec` say (`pkg/volume`).
    let files = |plugin, in_memory, mode: Option<i32>, sources| Files {
        plugin,
        in_memory,
        mode: mode_bits(mode.unwrap_or(FILE_MODE_DEFAULT)),
        sources,
    };
    Ok(Some(if let Some(map) = &volume.config_map {
        let object = object(RefKind::ConfigMap, namespace, &map.name);
        let source = of_object(object, map.optional, map.items.as_deref());
        files(
            "kubernetes.io~configmap",
            false,
            map.default_mode,
            vec![source],
        )
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        let object = object(RefKind::Secret, namespace, name);
        let source = of_object(object, secret.optional, secret.items.as_deref());
        files(
            "kubernetes.io~secret",
            true,
            secret.default_mode,
            vec![source],
        )
    } else if let Some(downward) = &volume.downward_api {
        let source = Source::Downward(downward.items.clone().unwrap_or_default());
        let mode = downward.default_mode;
        files("kubernetes.io~downward-api", true, mode, vec![source])
    } else if let Some(projected) = &volume.projected {
        let all = projected.sources.iter().flatten();
        let all = all.filter_map(|it| projection(namespace, &volume.name, it).transpose());
        let sources = all.collect::<Result<_, _>>()?;
        files(
            "kubernetes.io~projected",
            true,
            projected.default_mode,
            sources,
        )
    } else {
        return Ok(None);
    }))
}

/// One source of a projected volume; `None` if it says nothing.
fn projection(
    namespace: &str,
    volume: &str,
    source: &VolumeProjection,
) -> Result<Option<Source>, VolumeError> {
    let refused = |kind: &str| {
        Err(VolumeError::Unsupported {
            volume: volume.to_owned(),
            kind: format!("projected {kind}"),
        })
    };
    Ok(Some(if let Some(map) = &source.config_map {
        let object = object(RefKind::ConfigMap, namespace, &map.name);
        of_object(object, map.optional, map.items.as_deref())
    } else if let Some(secret) = &source.secret {
        let object = object(RefKind::Secret, namespace, &secret.name);
        of_object(object, secret.optional, secret.items.as_deref())
    } else if let Some(downward) = &source.downward_api {
        Source::Downward(downward.items.clone().unwrap_or_default())
    } else if let Some(token) = &source.service_account_token {
        Source::Token(token_file(token))
    } else if source.cluster_trust_bundle.is_some() {
        return refused("clusterTrustBundle");
    } else if source.pod_certificate.is_some() {
        return refused("podCertificate");
    } else {
        return Ok(None);
    }))
}

fn object(kind: RefKind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

fn of_object(object: ObjectRef, optional: Option<bool>, items: Option<&[KeyToPath]>) -> Source {
    let item = |it: &KeyToPath| Item {
        key: it.key.clone(),
        path: it.path.clone(),
        mode: it.mode.map(mode_bits),
    };
    Source::Object(Object {
        reference: object,
        optional: optional.unwrap_or_default(),
        items: items
            .filter(|items| !items.is_empty())
            .map(|it| it.iter().map(item).collect()),
    })
}

fn token_file(token: &ServiceAccountTokenProjection) -> TokenFile {
    TokenFile {
        audience: token.audience.clone().unwrap_or_default(),
        expiration_s: token
            .expiration_seconds
            .unwrap_or(TOKEN_EXPIRATION_S_DEFAULT),
        path: token.path.clone(),
    }
}

/// The bits of a mode that the API allows.
pub(crate) fn mode_bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(0) & MODE_BITS
}
