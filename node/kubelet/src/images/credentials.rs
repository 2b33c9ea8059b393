//! Which credentials fit which image. Pure.
//!
//! Rules: `pkg/credentialprovider/keyring.go` and `config.go` of Kubernetes. A key is a registry
//! with, perhaps, the beginning of a path; `*` in it stands for what is between two points. All
//! that fit are tried, the longest path first.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;
use swiftlet_model::runtime::ImageAuth;

/// Key of the file in a Secret of type `kubernetes.io/dockerconfigjson`.
const CONFIG_JSON: &str = ".dockerconfigjson";
/// Key of the older file in a Secret of type `kubernetes.io/dockercfg`.
const CONFIG_LEGACY: &str = ".dockercfg";
/// Under this key lie the credentials of the default registry, however an image names it.
const DEFAULT_REGISTRY_KEY: &str = "index.docker.io";
/// The default registry in a reference that has been completed.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Credentials by the registry that they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keyring {
    by_key: BTreeMap<String, Vec<ImageAuth>>,
}

impl Keyring {
    /// Adds what a Secret holds. False if it holds no credentials that can be read.
    pub(crate) fn add(&mut self, secret: &BTreeMap<String, Vec<u8>>) -> bool {
        let parse = |bytes: &Vec<u8>| serde_json::from_slice::<Value>(bytes).ok();
        let config = secret.get(CONFIG_JSON).and_then(parse);
        let legacy = secret.get(CONFIG_LEGACY).and_then(parse);
        let entries = match &config {
            Some(config) => config.get("auths").and_then(Value::as_object),
            None => legacy.as_ref().and_then(Value::as_object),
        };
        let Some(entries) = entries else {
            return false;
        };
        for (location, entry) in entries {
            if let Some(auth) = auth_of(entry) {
                self.by_key.entry(key_of(location)).or_default().push(auth);
            }
        }
        true
    }

    /// The credentials that fit an image of this name (registry and path), in the order in which
    /// they are tried; empty if none does.
    pub(crate) fn look_up(&self, name: &str) -> Vec<ImageAuth> {
        // Backwards, so that a longer path comes before its beginning.
        let fitting = self.by_key.iter().rev().filter(|(key, _)| fits(key, name));
        let mut found: Vec<_> = fitting.flat_map(|(_, auths)| auths.clone()).collect();
        if found.is_empty() && split(name).0 == DEFAULT_REGISTRY {
            found.extend(
                self.by_key
                    .get(DEFAULT_REGISTRY_KEY)
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
        }
        found
    }
}

/// The key of an entry: without scheme, and without the version in the path that some clients
/// write.
fn key_of(location: &str) -> String {
    let bare = location
        .strip_prefix("https://")
        .or_else(|| location.strip_prefix("http://"))
        .unwrap_or(location);
    let (host, path) = split(bare);
    let path = ["/v1/", "/v2/"]
        .iter()
        .find(|version| path.starts_with(**version))
        .map_or(path, |version| &path[version.len() - 1..]);
    if path == "/" {
        host.to_owned()
    } else {
        format!("{host}{path}")
    }
}

/// Host with port, and the path with its first slash.
fn split(name: &str) -> (&str, &str) {
    name.split_at(name.find('/').unwrap_or(name.len()))
}

fn fits(key: &str, name: &str) -> bool {
    let ((key_host, key_path), (host, path)) = (split(key), split(name));
    let ((pattern, key_port), (host, port)) = (split_port(key_host), split_port(host));
    let (patterns, parts): (Vec<_>, Vec<_>) =
        (pattern.split('.').collect(), host.split('.').collect());
    key_port == port
        && patterns.len() == parts.len()
        && path.starts_with(key_path)
        && patterns
            .iter()
            .zip(parts)
            .all(|(pattern, part)| glob(pattern, part))
}

fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (host, ""),
    }
}

/// `*` stands for any letters, `?` for one.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut seen) = (0, 0);
    // Where to go on if the last star has to take one letter more.
    let mut star = None;
    while seen < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(letter) if *letter == b'?' || *letter == text[seen] => {
                at += 1;
                seen += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else {
                    return false;
                };
                star = Some((star_at, taken + 1));
                (at, seen) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == b'*')
}

/// One entry; `auth` is `user:password` in base64 and counts more than the two fields.
fn auth_of(entry: &Value) -> Option<ImageAuth> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let (username, password) = match text("auth") {
        "" => (text("username").to_owned(), text("password").to_owned()),
        auth => decoded(auth)?,
    };
    Some(ImageAuth {
        username,
        password,
        ..ImageAuth::default()
    })
}

fn decoded(auth: &str) -> Option<(String, String)> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let bytes = GeneralPurpose::new(&STANDARD, config)
        .decode(auth.trim())
        .ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn keyring(keys: &[&str]) -> Keyring {
        let auths: serde_json::Map<_, _> = keys
            .iter()
            .map(|key| ((*key).to_owned(), json!({"username": key, "password": "p"})))
            .collect();
        let bytes = json!({"auths": auths}).to_string().into_bytes();
        let mut keyring = Keyring::default();
        assert!(keyring.add(&BTreeMap::from([(CONFIG_JSON.to_owned(), bytes)])));
        keyring
    }

    fn users(keys: &[&str], name: &str) -> Vec<String> {
        let found = keyring(keys).look_up(name);
        found.into_iter().map(|auth| auth.username).collect()
    }

    #[test]
    fn the_longest_path_is_tried_first_and_the_others_after_it() {
        let keys = ["quay.io", "quay.io/coreos", "quay.io/other", "gcr.io"];
        assert_eq!(
            users(&keys, "quay.io/coreos/etcd"),
            ["quay.io/coreos", "quay.io"]
        );
        assert_eq!(users(&keys, "quay.io/mine/etcd"), ["quay.io"]);
        assert!(users(&keys, "registry.local/etcd").is_empty());
    }

    #[test]
    fn a_star_stands_for_one_part_of_a_hosts_name() {
        assert_eq!(users(&["*.kubernetes.io"], "a.kubernetes.io/x").len(), 1);
        assert_eq!(users(&["prefix*.io"], "prefixed.io/x").len(), 1);
        assert_eq!(users(&["*.io/path"], "a.io/path/x").len(), 1);
        for other in [
            "kubernetes.io/x",
            "a.b.kubernetes.io/x",
            "a.kubernetes.org/x",
        ] {
            assert!(users(&["*.kubernetes.io"], other).is_empty(), "{other}");
        }
        assert!(users(&["*.io/path"], "a.io/other/x").is_empty());
    }

    #[test]
    fn the_port_is_a_part_of_the_registry() {
        assert_eq!(users(&["host:5000"], "host:5000/app").len(), 1);
        assert!(users(&["host:5000"], "host/app").is_empty());
        assert!(users(&["host"], "host:5000/app").is_empty());
    }

    #[test]
    fn schemes_and_versions_of_a_location_do_not_count() {
        for key in [
            "https://host",
            "http://host/",
            "host/v1/",
            "https://host/v2/",
        ] {
            assert_eq!(users(&[key], "host/app"), [key]);
        }
        assert_eq!(users(&["https://host/v1/team"], "host/team/app").len(), 1);
    }

    #[test]
    fn the_default_registry_has_several_names() {
        let hub = "https://index.docker.io/v1/";
        assert_eq!(users(&[hub], "docker.io/library/busybox"), [hub]);
        let both = [hub, "docker.io"];
        assert_eq!(users(&both, "docker.io/library/busybox"), ["docker.io"]);
        assert!(users(&[hub], "registry.local/busybox").is_empty());
    }

    #[test]
    fn both_kinds_of_secrets_are_read_and_the_encoded_pair_counts() {
        let entry = json!({"host": {"auth": "dXNlcjpwYTpzcw", "username": "other"}});
        for (key, bytes) in [
            (CONFIG_LEGACY, entry.to_string()),
            (CONFIG_JSON, json!({"auths": entry}).to_string()),
        ] {
            let mut keyring = Keyring::default();
            let secret = BTreeMap::from([(key.to_owned(), bytes.into_bytes())]);
            assert!(keyring.add(&secret));
            let found = keyring.look_up("host/app");
            assert_eq!(found.len(), 1);
            assert_eq!(
                (&*found[0].username, &*found[0].password),
                ("user", "pa:ss")
            );
            assert!(
                !format!("{found:?}").contains("pa:ss"),
                "it must not be logged"
            );
        }
    }

    #[test]
    fn a_secret_of_another_kind_holds_no_credentials() {
        let mut keyring = Keyring::default();
        for (key, text) in [("password", "x"), (CONFIG_JSON, "{"), (CONFIG_JSON, "{}")] {
            let secret = BTreeMap::from([(key.to_owned(), text.as_bytes().to_vec())]);
            assert!(!keyring.add(&secret));
        }
        assert_eq!(keyring, Keyring::default());
    }

    proptest! {
        #[test]
        fn a_key_without_stars_fits_exactly_what_begins_with_it(
            key in "[ab.]{1,6}(/[ab]{0,3}){0,2}", name in "[ab.]{1,6}(/[ab]{0,3}){0,2}"
        ) {
            let ((host, path), (other, below)) = (split(&key), split(&name));
            prop_assert_eq!(fits(&key, &name), host == other && below.starts_with(path));
        }

        #[test]
        fn a_star_takes_any_letters(
            before in "[ab]{0,4}", taken in "[ab]{0,4}", after in "[ab]{0,4}"
        ) {
            let pattern = format!("{before}*{after}");
            let text = format!("{before}{taken}{after}");
            prop_assert!(glob(&pattern, &text));
        }
    }
}
