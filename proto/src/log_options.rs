//! `PodLogOptions` as a query says them: the API server checks them, the node reads by them.
//!
//! Rules: `ValidatePodLogOptions` in `pkg/apis/core/validation/validation.go` of Kubernetes.

use jiff::{SignedDuration, Timestamp};

/// Which of a container's two streams are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogStreams {
    /// Both, in the order in which they were written.
    #[default]
    All,
    /// Standard output alone.
    Stdout,
    /// Standard error alone.
    Stderr,
}

/// From when on lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So many seconds before now.
    Seconds(i64),
    /// This moment.
    Time(Timestamp),
}

/// What is wanted of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// `container`; empty if not given.
    pub container: String,
    /// `follow`.
    pub follow: bool,
    /// `previous`.
    pub previous: bool,
    /// `timestamps`.
    pub timestamps: bool,
    /// `tailLines`.
    pub tail_lines: Option<usize>,
    /// `limitBytes`.
    pub limit_bytes: Option<u64>,
    /// `sinceSeconds` or `sinceTime`.
    pub since: Option<Since>,
    /// `stream`.
    pub streams: LogStreams,
    /// `insecureSkipTLSVerifyBackend`.
    pub skip_tls_verify: bool,
}

/// What is wrong with a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogOptionsError {
    /// A value that is no value of its field's type.
    #[error("{field}: cannot read {value:?}")]
    Malformed {
        /// The field.
        field: &'static str,
        /// What stands there.
        value: String,
    },
    /// A value that the field may not have.
    #[error("{field}: Invalid value: {value}: {why}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The value.
        value: i64,
        /// What it must be.
        why: &'static str,
    },
    /// A value that is none of the known ones.
    #[error("stream: Unsupported value: {0:?}: supported values: \"All\", \"Stderr\", \"Stdout\"")]
    Stream(String),
    /// Fields that exclude each other.
    #[error("{field}: Forbidden: {why}")]
    Together {
        /// The field; empty for the whole.
        field: &'static str,
        /// Why not.
        why: &'static str,
    },
}

/// Kubernetes' words for a number below 0, and for one below 1.
const NEGATIVE: &str = "must be greater than or equal to 0";
const NOT_POSITIVE: &str = "must be greater than 0";

impl LogOptions {
    /// Reads the decoded pairs of a query. Unknown names are left alone, as Kubernetes leaves
    /// them; a name that is given twice counts once, the first time.
    pub fn parse<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LogOptionsError> {
        let mut options = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        let (mut seconds, mut time) = (None, None);
        for (name, value) in pairs {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            match name {
                "container" => value.clone_into(&mut options.container),
                "follow" => options.follow = boolean(value),
                "previous" => options.previous = boolean(value),
                "timestamps" => options.timestamps = boolean(value),
                "insecureSkipTLSVerifyBackend" => options.skip_tls_verify = boolean(value),
                "tailLines" => {
                    let lines = at_least("tailLines", value, 0, NEGATIVE)?;
                    options.tail_lines = lines.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
                }
                "limitBytes" => {
                    let bytes = at_least("limitBytes", value, 1, NOT_POSITIVE)?;
                    options.limit_bytes = bytes.and_then(|n| u64::try_from(n).ok());
                }
                "sinceSeconds" => seconds = at_least("sinceSeconds", value, 1, NOT_POSITIVE)?,
                "sinceTime" if !value.is_empty() => time = Some(moment(value)?),
                "stream" => options.streams = streams(value)?,
                // Whoever sends thousands of them does not make this slow.
                _ => drop(seen.pop()),
            }
        }
        options.since = match (seconds, time) {
            (Some(_), Some(_)) => {
                return Err(LogOptionsError::Together {
                    field: "",
                    why: "at most one of `sinceTime` or `sinceSeconds` may be specified",
                });
            }
            (Some(seconds), None) => Some(Since::Seconds(seconds)),
            (None, time) => time.map(Since::Time),
        };
        if options.tail_lines.is_some() && options.streams != LogStreams::All {
            return Err(LogOptionsError::Together {
                field: "",
                why: "`tailLines` and specific `stream` are mutually exclusive for now",
            });
        }
        Ok(options)
    }

    /// The moment from which on lines are wanted.
    pub fn since(&self, now: Timestamp) -> Option<Timestamp> {
        match self.since? {
            Since::Time(time) => Some(time),
            Since::Seconds(seconds) => {
                let ago = now.checked_sub(SignedDuration::from_secs(seconds));
                Some(ago.unwrap_or(Timestamp::MIN))
            }
        }
    }
}

/// As Kubernetes reads it: a name alone is true, and all values but these two
/// (`Convert_Slice_string_To_bool` of apimachinery).
fn boolean(value: &str) -> bool {
    !(value.eq_ignore_ascii_case("false") || value == "0")
}

fn at_least(
    field: &'static str,
    value: &str,
    least: i64,
    why: &'static str,
) -> Result<Option<i64>, LogOptionsError> {
    if value.is_empty() {
        return Ok(None);
    }
    let number: i64 = value.parse().map_err(|_| LogOptionsError::Malformed {
        field,
        value: value.to_owned(),
    })?;
    if number < least {
        return Err(LogOptionsError::Invalid {
            field,
            value: number,
            why,
        });
    }
    Ok(Some(number))
}

fn moment(value: &str) -> Result<Timestamp, LogOptionsError> {
    value.parse().map_err(|_| LogOptionsError::Malformed {
        field: "sinceTime",
        value: value.to_owned(),
    })
}

fn streams(value: &str) -> Result<LogStreams, LogOptionsError> {
    match value {
        "" | "All" => Ok(LogStreams::All),
        "Stdout" => Ok(LogStreams::Stdout),
        "Stderr" => Ok(LogStreams::Stderr),
        _ => Err(LogOptionsError::Stream(value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<LogOptions, LogOptionsError> {
        LogOptions::parse(pairs.iter().copied())
    }

    #[test]
    fn a_query_is_read_as_kubectl_writes_it() {
        let options = parse(&[
            ("container", "main"),
            ("follow", "true"),
            ("previous", "false"),
            ("tailLines", "20"),
            ("sinceTime", "2024-01-02T03:04:05Z"),
            ("unknown", "x"),
        ]);
        let options = options.unwrap();
        assert!(options.follow && !options.previous);
        assert_eq!(
            (options.tail_lines, options.container.as_str()),
            (Some(20), "main")
        );
        let since = options.since(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(since.to_string(), "2024-01-02T03:04:05Z");
        let seconds = parse(&[("sinceSeconds", "10")]).unwrap();
        assert_eq!(
            seconds.since(Timestamp::UNIX_EPOCH).unwrap().as_second(),
            -10
        );
    }

    #[test]
    fn what_kubernetes_refuses_is_refused_in_its_words() {
        let words = |pairs: &[(&str, &str)]| parse(pairs).unwrap_err().to_string();
        let expected = "limitBytes: Invalid value: 0: must be greater than 0";
        assert_eq!(words(&[("limitBytes", "0")]), expected);
        let expected = "tailLines: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(words(&[("tailLines", "-1")]), expected);
        let both = [("sinceSeconds", "1"), ("sinceTime", "2024-01-02T03:04:05Z")];
        assert!(words(&both).contains("at most one of"));
        assert!(words(&[("tailLines", "1"), ("stream", "Stdout")]).contains("exclusive"));
        assert!(words(&[("stream", "Other")]).contains("Unsupported value"));
        assert!(words(&[("tailLines", "x")]).contains("cannot read"));
    }
}
