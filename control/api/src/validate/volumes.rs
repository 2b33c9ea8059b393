//! Volumes of a pod.

use serde_json::Value;

use super::downward::{self, Purpose};
use super::names;
use super::{
    Errors, child, container, duplicate, items, not_supported, number, one_of, present,
    push_messages, required, text,
};
use crate::registry::FieldError;

/// Largest file mode, in octal 0777.
const MODE_MAX: i64 = 0o777;
const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// Checks the volumes of a pod; answers their names.
pub(super) fn volumes<'a>(spec: &'a Value, path: &str, errors: &mut Errors) -> Vec<&'a str> {
    let mut seen: Vec<&str> = Vec::new();
    for (path, volume) in items(spec, path, "volumes") {
        let name = text(volume, "name");
        let field = child(&path, "name");
        if name.is_empty() {
            errors.push(FieldError::required(field, ""));
        } else if seen.contains(&name) {
            errors.push(duplicate(field, name));
        } else {
            push_messages(errors, &field, name, names::label(name));
        }
        seen.push(name);
        source(volume, &path, errors);
    }
    seen
}

fn source(volume: &Value, path: &str, errors: &mut Errors) {
    let Some(members) = volume.as_object() else {
        return;
    };
    let kinds: Vec<&String> = members
        .iter()
        .filter(|(key, value)| *key != "name" && !value.is_null())
        .map(|(key, _)| key)
        .collect();
    let Some(kind) = kinds.first() else {
        errors.push(FieldError::required(path, "must specify a volume type"));
        return;
    };
    for more in &kinds[1..] {
        let detail = "may not specify more than 1 volume type";
        errors.push(FieldError::forbidden(child(path, more), detail));
    }
    let (source, path) = (&volume[kind.as_str()], child(path, kind));
    match kind.as_str() {
        "hostPath" => host_path(source, &path, errors),
        "secret" => {
            required(source, &path, "secretName", errors);
            mode(source, &path, "defaultMode", errors);
            key_paths(source, &path, errors);
        }
        "configMap" => {
            required(source, &path, "name", errors);
            mode(source, &path, "defaultMode", errors);
            key_paths(source, &path, errors);
        }
        "downwardAPI" => {
            mode(source, &path, "defaultMode", errors);
            downward_files(source, &path, errors);
        }
        "projected" => projected(source, &path, errors),
        "persistentVolumeClaim" => required(source, &path, "claimName", errors),
        "image" => image(source, &path, errors),
        "emptyDir" => empty_dir(source, &path, errors),
        _ => (),
    }
}

fn image(source: &Value, path: &str, errors: &mut Errors) {
    required(source, path, "reference", errors);
    if !text(source, "pullPolicy").is_empty() {
        let known = &["Always", "IfNotPresent", "Never"];
        one_of(source, path, "pullPolicy", known, errors);
    }
}

fn empty_dir(source: &Value, path: &str, errors: &mut Errors) {
    if let Some(limit) = present(source, "sizeLimit") {
        let field = child(path, "sizeLimit");
        super::quantities::amount_value(limit, &field, "ephemeral-storage", errors);
    }
}

fn host_path(source: &Value, path: &str, errors: &mut Errors) {
    required(source, path, "path", errors);
    container::no_way_up(text(source, "path"), &child(path, "path"), errors);
    let kind = text(source, "type");
    if !HOST_PATH_TYPES.contains(&kind) {
        errors.push(not_supported(child(path, "type"), kind, HOST_PATH_TYPES));
    }
}

fn mode(source: &Value, path: &str, key: &str, errors: &mut Errors) {
    let Some(mode) = number(source, key) else {
        return;
    };
    if !(0..=MODE_MAX).contains(&mode) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.push(FieldError::invalid(child(path, key), mode.into(), detail));
    }
}

fn key_paths(source: &Value, path: &str, errors: &mut Errors) {
    for (path, item) in items(source, path, "items") {
        required(item, &path, "key", errors);
        file_path(item, &path, errors);
        mode(item, &path, "mode", errors);
    }
}

fn downward_files(source: &Value, path: &str, errors: &mut Errors) {
    for (path, item) in items(source, path, "items") {
        file_path(item, &path, errors);
        mode(item, &path, "mode", errors);
        match (present(item, "fieldRef"), present(item, "resourceFieldRef")) {
            (None, None) => {
                let detail = "one of fieldRef and resourceFieldRef is required";
                errors.push(FieldError::required(path, detail));
            }
            (Some(_), Some(_)) => {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource".into(), detail));
            }
            (Some(reference), None) => {
                let path = child(&path, "fieldRef");
                downward::field_ref(reference, &path, Purpose::Volume, errors);
            }
            (None, Some(reference)) => {
                let path = child(&path, "resourceFieldRef");
                downward::resource_ref(reference, &path, Purpose::Volume, errors);
            }
        }
    }
}

fn projected(source: &Value, path: &str, errors: &mut Errors) {
    mode(source, path, "defaultMode", errors);
    for (path, part) in items(source, path, "sources") {
        let kinds: Vec<&String> = part
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key)
            .collect();
        for more in kinds.iter().skip(1) {
            let detail = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(child(&path, more), detail));
        }
        let Some(kind) = kinds.first() else {
            errors.push(FieldError::required(path, "must specify a projection type"));
            continue;
        };
        let (source, path) = (&part[kind.as_str()], child(&path, kind));
        match kind.as_str() {
            "secret" | "configMap" => {
                required(source, &path, "name", errors);
                key_paths(source, &path, errors);
            }
            "downwardAPI" => downward_files(source, &path, errors),
            "serviceAccountToken" => {
                file_path(source, &path, errors);
                let seconds = number(source, "expirationSeconds").unwrap_or(600);
                if seconds < 600 {
                    let detail = "may not specify a duration less than 10 minutes";
                    let field = child(&path, "expirationSeconds");
                    errors.push(FieldError::invalid(field, seconds.into(), detail));
                }
            }
            _ => (),
        }
    }
}

/// Where a file is written below the volume.
fn file_path(item: &Value, path: &str, errors: &mut Errors) {
    required(item, path, "path", errors);
    let (file, field) = (text(item, "path"), child(path, "path"));
    container::relative(file, &field, errors);
    if file.starts_with("..") && !file.starts_with("../") && file != ".." {
        errors.push(FieldError::invalid(
            field,
            file.into(),
            "must not start with '..'",
        ));
    }
}
