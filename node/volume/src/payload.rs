//! Which files a volume shows. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, Pod};
use swiftlet_model::control_plane::{RefKind, ReferencedData};
use swiftlet_model::volumes::VolumeError;

use crate::files::{Files, Item, Object, Source, TokenFile, mode_bits};
use crate::plan::{Amounts, fs_group, fs_user};
use crate::{downward, failed};

/// Longest path, and longest part of one. Source: `validatePath` of Kubernetes' atomic writer.
const PATH_BYTES_MAX: usize = 4096;
const PART_BYTES_MAX: usize = 255;
/// Mode of a token that belongs to the pod's user or group. Source: `pkg/volume/projected`.
const TOKEN_MODE: u32 = 0o600;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
    /// Its user; `None` leaves it to root.
    pub(crate) owner: Option<u32>,
}

/// Files by their relative paths.
pub(crate) type Payload = BTreeMap<String, File>;

/// What was fetched for one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fetched {
    /// It needs nothing.
    Nothing,
    /// An object; `None`: it is missing and optional.
    Object(Option<ReferencedData>),
    /// A token.
    Token(String),
    /// It cannot be had before the control plane has spoken for the first time: in words, and the
    /// path of its file.
    Lacking { what: String, path: String },
}

/// The files of a volume, of its sources in their order.
pub(crate) fn payload(
    volume: &str,
    files: &Files,
    fetched: &[Fetched],
    pod: &Pod,
    amounts: &Amounts,
) -> Result<Payload, VolumeError> {
    let mut all = Writer {
        volume,
        mode: files.mode,
        payload: Payload::new(),
    };
    for (source, fetched) in files.sources.iter().zip(fetched) {
        match (source, fetched) {
            (Source::Object(object), Fetched::Object(Some(data))) => all.object(object, data)?,
            (Source::Downward(items), _) => all.downward(items, pod, amounts)?,
            (Source::Token(file), Fetched::Token(token)) => all.token(file, token, pod)?,
            _ => {}
        }
    }
    Ok(all.payload)
}

struct Writer<'a> {
    volume: &'a str,
    mode: u32,
    payload: Payload,
}

impl Writer<'_> {
    fn put(&mut self, path: &str, file: File) -> Result<(), VolumeError> {
        check(path).map_err(|why| failed(self.volume, &format!("path \"{path}\": {why}")))?;
        self.payload.insert(path.to_owned(), file);
        Ok(())
    }

    fn object(&mut self, object: &Object, data: &ReferencedData) -> Result<(), VolumeError> {
        let Some(items) = &object.items else {
            return data
                .iter()
                .try_for_each(|(key, content)| self.key(key, content, self.mode));
        };
        for item in items {
            match data.get(&item.key) {
                Some(content) => {
                    self.key(&item.path, content, item.mode.unwrap_or(self.mode))?;
                }
                None if object.optional => (),
                None => return Err(self.no_key(object, item)),
            }
        }
        Ok(())
    }

    fn key(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), VolumeError> {
        let file = File {
            content: content.to_vec(),
            mode,
            owner: None,
        };
        self.put(path, file)
    }

    /// In the words of `MakePayload` (`pkg/volume/configmap`, `pkg/volume/secret`).
    fn no_key(&self, object: &Object, item: &Item) -> VolumeError {
        let word = match object.reference.kind {
            RefKind::Secret => "secret",
            _ => "config",
        };
        let cause = format!("references non-existent {word} key: {}", item.key);
        failed(self.volume, &cause)
    }

    fn downward(
        &mut self,
        items: &[DownwardAPIVolumeFile],
        pod: &Pod,
        amounts: &Amounts,
    ) -> Result<(), VolumeError> {
        for item in items {
            let content = downward::content(item, pod, amounts);
            let content = content.map_err(|why| failed(self.volume, &why))?;
            let mode = item.mode.map_or(self.mode, mode_bits);
            self.key(&item.path, content.as_bytes(), mode)?;
        }
        Ok(())
    }

    /// A token is for the pod's user or group alone where there is one; the group's bits come with
    /// its ownership.
    fn token(&mut self, file: &TokenFile, token: &str, pod: &Pod) -> Result<(), VolumeError> {
        let owner = fs_user(pod);
        let is_own = owner.is_some() || fs_group(pod).is_some();
        let content = token.as_bytes().to_vec();
        let mode = if is_own { TOKEN_MODE } else { self.mode };
        let file_of_token = File {
            content,
            mode,
            owner,
        };
        self.put(&file.path, file_of_token)
    }
}

/// Refuses what would lie outside of the volume, or hide what the writer itself makes.
fn check(path: &str) -> Result<(), &'static str> {
    if path.is_empty() {
        return Err("must not be empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Err("is too long");
    }
    if path.starts_with("..") {
        return Err("must not start with \"..\"");
    }
    for part in path.split('/') {
        match part {
            "" => return Err("must be relative and without empty parts"),
            "." | ".." => return Err("must not contain \".\" or \"..\""),
            _ if part.len() > PART_BYTES_MAX => return Err("has a part that is too long"),
            _ if part.contains('\0') => return Err("must not contain a zero byte"),
            _ => (),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
