//! Where a redirect leads. Pure.

use std::fmt::Write as _;

use swiftlet_model::probes::HttpScheme;

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) scheme: HttpScheme,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query, escaped, with its slash.
    pub(crate) path: String,
}

impl Target {
    pub(crate) fn new(scheme: HttpScheme, host: &str, port: u16, path: &str) -> Self {
        Self {
            scheme,
            host: host.to_owned(),
            port,
            path: escaped(path),
        }
    }

    /// The address as people write it.
    pub(crate) fn url(&self) -> String {
        let scheme = match self.scheme {
            HttpScheme::Http => "http",
            HttpScheme::Https => "https",
        };
        let authority = crate::address(&self.host, self.port);
        format!("{scheme}://{authority}{}", self.path)
    }

    /// The target that a `Location` names, seen from this one.
    pub(crate) fn follow(&self, location: &str) -> Option<Self> {
        let (scheme, rest) = match location.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (HttpScheme::Http, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                (HttpScheme::Https, rest)
            }
            _ => match location.strip_prefix("//") {
                Some(rest) => (self.scheme, rest),
                None => return Some(self.within(location)),
            },
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let authority = authority.rsplit('@').next().unwrap_or_default();
        let (host, port) = split_port(authority, scheme)?;
        Some(Self::new(scheme, &host, port, path))
    }

    /// A path on the same host.
    fn within(&self, location: &str) -> Self {
        let own = self.path.split(['?', '#']).next().unwrap_or_default();
        let path = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') {
            format!("{own}{location}")
        } else {
            let folder = own.rfind('/').map_or("/", |at| &own[..=at]);
            format!("{folder}{location}")
        };
        Self::new(self.scheme, &self.host, self.port, &path)
    }
}

fn split_port(authority: &str, scheme: HttpScheme) -> Option<(String, u16)> {
    let default = match scheme {
        HttpScheme::Http => 80,
        HttpScheme::Https => 443,
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port.filter(|port| !port.is_empty()) {
        Some(port) => port.parse().ok()?,
        None => default,
    };
    Some((host.to_owned(), port)).filter(|(host, _)| !host.is_empty())
}

/// A path with its leading slash, without a fragment, in which what a request line cannot hold is
/// escaped. What is escaped already stays.
fn escaped(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    for byte in path.bytes() {
        let plain = byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if plain {
            text.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_seen_from_where_it_was_said() {
        let from = Target::new(HttpScheme::Http, "10.0.0.1", 8080, "/a/b?x=1");
        for (location, expected) in [
            ("/c", "http://10.0.0.1:8080/c"),
            ("c?d", "http://10.0.0.1:8080/a/c?d"),
            ("?y=2", "http://10.0.0.1:8080/a/b?y=2"),
            ("//other/", "http://other:80/"),
            ("https://other", "https://other:443/"),
            (
                "https://user@[fd00::1]:8443/x#part",
                "https://[fd00::1]:8443/x",
            ),
        ] {
            let found = from.follow(location).map(|target| target.url());
            assert_eq!(found.as_deref(), Some(expected), "{location}");
        }
        assert_eq!(from.follow("http://host:port/"), None);
        assert_eq!(from.follow("http:///x"), None);
    }

    #[test]
    fn a_path_fits_into_a_request_line() {
        let path = |text| Target::new(HttpScheme::Http, "h", 1, text).path;
        assert_eq!(path(""), "/");
        assert_eq!(path("healthz?deep=true"), "/healthz?deep=true");
        assert_eq!(path("/a b/ü%20"), "/a%20b/%C3%BC%20");
        assert_eq!(path("/a\r\nX: y"), "/a%0D%0AX:%20y");
    }
}
