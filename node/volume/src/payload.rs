//! Which files a ConfigMap or Secret volume shows. Pure.

use std::collections::BTreeMap;

use swiftlet_model::control_plane::ReferencedData;
use swiftlet_model::volumes::VolumeError;

use crate::failed;
use crate::plan::{Files, Plan};

/// Longest path, and longest part of one. Source: `validatePath` of Kubernetes' atomic writer.
const PATH_BYTES_MAX: usize = 4096;
const PART_BYTES_MAX: usize = 255;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    pub(crate) mode: u32,
}

/// Files by their relative paths.
pub(crate) type Payload = BTreeMap<String, File>;

/// The files of a volume; none if its object is missing and optional.
pub(crate) fn payload(
    plan: &Plan,
    files: &Files,
    data: Option<&ReferencedData>,
) -> Result<Payload, VolumeError> {
    let Some(data) = data else {
        return Ok(Payload::new());
    };
    let mut payload = Payload::new();
    let mut put = |path: &str, content: &[u8], mode: u32| {
        check(path).map_err(|why| failed(&plan.name, &format!("path \"{path}\": {why}")))?;
        payload.insert(
            path.to_owned(),
            File {
                content: content.to_vec(),
                mode,
            },
        );
        Ok(())
    };
    let Some(items) = &files.items else {
        for (key, content) in data.iter() {
            put(key, content, files.mode)?;
        }
        return Ok(payload);
    };
    for item in items {
        match data.get(&item.key) {
            Some(content) => put(&item.path, content, item.mode.unwrap_or(files.mode))?,
            None if files.optional => (),
            None => {
                let what = format!(
                    "key \"{}\" of {} \"{}\"",
                    item.key,
                    files.object.kind.word(),
                    files.object.name
                );
                return Err(VolumeError::Missing {
                    volume: plan.name.clone(),
                    what,
                });
            }
        }
    }
    Ok(payload)
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
mod tests {
    use std::sync::Arc;

    use swiftlet_model::control_plane::{ObjectRef, RefKind};

    use super::*;
    use crate::plan::{Item, Kind};

    fn plan(optional: bool, items: Option<Vec<Item>>) -> (Plan, Files) {
        let object = ObjectRef {
            kind: RefKind::ConfigMap,
            namespace: "default".into(),
            name: "cm".into(),
        };
        let files = Files {
            object,
            optional,
            mode: 0o644,
            items,
        };
        (
            Plan {
                name: "config".into(),
                kind: Kind::Files(files.clone()),
            },
            files,
        )
    }

    fn item(key: &str, path: &str, mode: Option<u32>) -> Item {
        Item {
            key: key.into(),
            path: path.into(),
            mode,
        }
    }

    fn data(keys: &[&str]) -> ReferencedData {
        Arc::new(
            keys.iter()
                .map(|&key| (key.to_owned(), key.as_bytes().to_vec()))
                .collect(),
        )
    }

    #[test]
    fn items_choose_keys_paths_and_modes() {
        let items = vec![
            item("a", "deep/a.txt", Some(0o400)),
            item("b", "b.txt", None),
        ];
        let (plan, files) = plan(false, Some(items));
        let payload = payload(&plan, &files, Some(&data(&["a", "b", "c"]))).unwrap();
        assert_eq!(payload.keys().collect::<Vec<_>>(), ["b.txt", "deep/a.txt"]);
        assert_eq!(
            (payload["deep/a.txt"].mode, payload["b.txt"].mode),
            (0o400, 0o644)
        );
    }

    #[test]
    fn a_missing_key_is_an_error_unless_optional() {
        let items = vec![item("gone", "x", None)];
        let (strict, files) = plan(false, Some(items.clone()));
        let error = payload(&strict, &files, Some(&data(&["a"]))).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("key \"gone\" of configmap \"cm\" not found"),
            "{error}"
        );
        let (lax, files) = plan(true, Some(items));
        assert!(
            payload(&lax, &files, Some(&data(&["a"])))
                .unwrap()
                .is_empty()
        );
        assert!(payload(&lax, &files, None).unwrap().is_empty());
    }

    #[test]
    fn no_path_leads_out_of_the_volume() {
        let bad = [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "..data",
            "a//b",
            "a/.",
            "a/",
            "x\0",
        ];
        for path in bad {
            assert!(check(path).is_err(), "{path:?}");
        }
        for path in ["a", "a/b", ".hidden", "a/..b", "a..b"] {
            assert!(check(path).is_ok(), "{path:?}");
        }
        let (plan, files) = plan(false, None);
        assert!(payload(&plan, &files, Some(&data(&["../../x"]))).is_err());
    }
}
