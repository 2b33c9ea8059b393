//! Image references, read and completed as Kubernetes does it. Pure.
//!
//! ```text
//! busybox                      docker.io/library/busybox:latest
//! user/app:2                   docker.io/user/app:2
//! localhost/app                localhost/app:latest
//! host:5000/app@sha256:…       host:5000/app@sha256:…
//! ```
//!
//! Grammar: `reference/reference.go` and `reference/normalize.go` of distribution.

/// Longest name, registry and path together (`NameTotalLengthMax`).
const NAME_BYTES_MAX: usize = 255;
/// Longest tag.
const TAG_BYTES_MAX: usize = 128;
/// Shortest hexadecimal part of a digest.
const DIGEST_DIGITS_MIN: usize = 32;
/// Digits of an image's id, which is no name.
const ID_DIGITS: usize = 64;
/// The registry of names that name none.
const DEFAULT_REGISTRY: &str = "docker.io";
/// An old name of the same registry.
const LEGACY_REGISTRY: &str = "index.docker.io";
/// Where that registry keeps images without an owner.
const OFFICIAL_PATH: &str = "library";
/// The tag of references that have neither tag nor digest.
pub(crate) const DEFAULT_TAG: &str = "latest";

/// An image reference in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The registry, with its port.
    pub(crate) registry: String,
    /// The path in it.
    pub(crate) path: String,
    pub(crate) tag: Option<String>,
    pub(crate) digest: Option<String>,
}

/// Why a text is no reference, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReferenceError {
    /// It does not follow the grammar.
    #[error("couldn't parse image name \"{0}\": invalid reference format")]
    Format(String),
    /// Its path has a capital letter.
    #[error(
        "couldn't parse image name \"{image}\": invalid reference format: \
         repository name ({path}) must be lowercase"
    )]
    Uppercase {
        /// All of it.
        image: String,
        /// The path.
        path: String,
    },
    /// It looks like an image's id.
    #[error(
        "couldn't parse image name \"{0}\": invalid repository name ({0}), \
         cannot specify 64-byte hexadecimal strings"
    )]
    Id(String),
    /// Its name is too long.
    #[error(
        "couldn't parse image name \"{0}\": repository name must not be more than 255 characters"
    )]
    TooLong(String),
}

impl Reference {
    /// Reads a reference as a pod names it.
    pub(crate) fn parse(image: &str) -> Result<Self, ReferenceError> {
        let format = || ReferenceError::Format(image.to_owned());
        if image.len() == ID_DIGITS && image.bytes().all(is_hex) {
            return Err(ReferenceError::Id(image.to_owned()));
        }
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        let (registry, remainder) = split_registry(rest);
        let (path, tag) = match remainder.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (remainder.as_str(), None),
        };
        if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(ReferenceError::Uppercase {
                image: image.to_owned(),
                path: path.to_owned(),
            });
        }
        let well = is_registry(&registry)
            && path.split('/').all(is_path_part)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !well {
            return Err(format());
        }
        if registry.len() + 1 + path.len() > NAME_BYTES_MAX {
            return Err(ReferenceError::TooLong(image.to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
            registry,
        })
    }

    /// Registry and path, without tag and digest: what credentials are looked up by.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.registry, self.path)
    }

    /// Whether it means the newest image, whichever that is.
    pub(crate) fn is_latest(&self) -> bool {
        match (&self.tag, &self.digest) {
            (Some(tag), _) => tag == DEFAULT_TAG,
            (None, digest) => digest.is_none(),
        }
    }

    /// The whole name as the runtime lists it: with registry and tag.
    pub(crate) fn full(&self) -> String {
        let mut full = self.name();
        if let Some(tag) = &self.tag {
            full = format!("{full}:{tag}");
        }
        match &self.digest {
            Some(digest) => format!("{full}@{digest}"),
            None if self.tag.is_none() => format!("{full}:{DEFAULT_TAG}"),
            None => full,
        }
    }
}

/// The pod's own words, with the default tag where it has neither tag nor digest. The registry is
/// not written in: what a short name means is the runtime's choice
/// (`pkg/kubelet/images/image_manager.go`, `applyDefaultImageTag`).
pub(crate) fn with_default_tag(image: &str, reference: &Reference) -> String {
    if reference.tag.is_none() && reference.digest.is_none() {
        format!("{image}:{DEFAULT_TAG}")
    } else {
        image.to_owned()
    }
}

/// The first part is a registry if it can be no user's name: it has a point, a port or a capital
/// letter, or is `localhost`.
fn split_registry(name: &str) -> (String, String) {
    let first = name.split_once('/').filter(|(first, _)| {
        first.contains(['.', ':'])
            || *first == "localhost"
            || first.bytes().any(|byte| byte.is_ascii_uppercase())
    });
    let (registry, rest) = first.unwrap_or((DEFAULT_REGISTRY, name));
    if registry != DEFAULT_REGISTRY && registry != LEGACY_REGISTRY {
        return (registry.to_owned(), rest.to_owned());
    }
    let rest = if rest.contains('/') {
        rest.to_owned()
    } else {
        format!("{OFFICIAL_PATH}/{rest}")
    };
    (DEFAULT_REGISTRY.to_owned(), rest)
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_registry(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        ends.iter()
            .all(|end| end.is_some_and(|end| end.is_ascii_alphanumeric()))
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_v6 = |host: &str| {
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| {
            !inner.is_empty() && inner.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
        })
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    (host.split('.').all(is_label) || is_v6(host)) && port.is_none_or(is_port)
}

/// Lower-case words, joined by one point, one or two underscores, or any number of dashes.
fn is_path_part(part: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_joint =
        |joint: &str| matches!(joint, "." | "_" | "__") || joint.bytes().all(|byte| byte == b'-');
    let ends = [part.bytes().next(), part.bytes().next_back()];
    ends.iter().all(|end| end.is_some_and(is_word))
        && part
            .split(|letter: char| u8::try_from(letter).is_ok_and(is_word))
            .filter(|joint| !joint.is_empty())
            .all(is_joint)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG_BYTES_MAX
        && tag.bytes().next().is_some_and(is_word)
        && tag
            .bytes()
            .all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, digits)) = digest.split_once(':') else {
        return false;
    };
    let is_part = |part: &str| {
        part.bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    algorithm.split(['-', '_', '+', '.']).all(is_part)
        && digits.len() >= DIGEST_DIGITS_MIN
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "sha256:00000000000000000000000000000000";

    fn full(image: &str) -> String {
        Reference::parse(image).unwrap().full()
    }

    #[test]
    fn short_names_mean_the_default_registry() {
        for (image, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("busybox:1.35", "docker.io/library/busybox:1.35"),
            ("user/app", "docker.io/user/app:latest"),
            ("index.docker.io/app", "docker.io/library/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("registry.local/a__b/c-d:v1", "registry.local/a__b/c-d:v1"),
            ("host:5000/app", "host:5000/app:latest"),
            ("[::1]:5000/app", "[::1]:5000/app:latest"),
            ("Host/app", "Host/app:latest"),
        ] {
            assert_eq!(full(image), whole);
        }
        assert_eq!(
            full(&format!("app@{DIGEST}")),
            format!("docker.io/library/app@{DIGEST}")
        );
        assert_eq!(
            full(&format!("app:1@{DIGEST}")),
            format!("docker.io/library/app:1@{DIGEST}")
        );
    }

    #[test]
    fn a_default_tag_is_added_to_the_pods_own_words() {
        let tagged = |image: &str| with_default_tag(image, &Reference::parse(image).unwrap());
        assert_eq!(tagged("busybox"), "busybox:latest");
        assert_eq!(tagged("host:5000/app"), "host:5000/app:latest");
        assert_eq!(tagged("busybox:1"), "busybox:1");
        let digest = format!("busybox@{DIGEST}");
        assert_eq!(tagged(&digest), digest);
    }

    #[test]
    fn what_is_no_reference_is_refused_with_the_words_of_kubernetes() {
        for bad in [
            "",
            "a b",
            "/a",
            "a//b",
            ":x",
            "a@b",
            "a:",
            "a-",
            "-a",
            "a...b",
            "a___b",
            "a:b c",
            "host:port/a",
            "a@sha256:0",
        ] {
            assert_eq!(
                Reference::parse(bad),
                Err(ReferenceError::Format(bad.to_owned())),
                "{bad}"
            );
        }
        assert_eq!(
            Reference::parse("Busybox").unwrap_err().to_string(),
            "couldn't parse image name \"Busybox\": invalid reference format: repository name \
             (library/Busybox) must be lowercase"
        );
        let id = "0".repeat(ID_DIGITS);
        assert_eq!(Reference::parse(&id), Err(ReferenceError::Id(id.clone())));
        let long = "a".repeat(NAME_BYTES_MAX);
        assert_eq!(
            Reference::parse(&long),
            Err(ReferenceError::TooLong(long.clone()))
        );
    }

    proptest! {
        #[test]
        fn a_whole_name_means_itself(image in "[a-z0-9./:@_-]{1,40}") {
            if let Ok(reference) = Reference::parse(&image) {
                let whole = reference.full();
                prop_assert_eq!(Reference::parse(&whole).unwrap().full(), whole);
            }
        }

        #[test]
        fn no_text_is_too_strange(image in "\\PC{0,60}") {
            let _ = Reference::parse(&image);
        }
    }
}
