//! One line as the runtime writes it. Pure.
//!
//! ```text
//! 2024-01-02T03:04:05.123456789Z stdout F text
//!  when                           stream └ F: the line ends here, P: more of it follows
//! ```
//!
//! Source: `pkg/kubelet/apis/cri`'s log format (`kubelet-cri-logging.md`), `parseCRILog` in
//! `pkg/kubelet/kuberuntime/logs/logs.go` of Kubernetes.

use jiff::Timestamp;

/// Digits of a second's fraction in what users see (`RFC3339NanoFixed` of
/// `pkg/kubelet/types/constants.go`); the runtime leaves out zeros at the end.
const FRACTION_DIGITS: usize = 9;

/// Which stream of the process wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of the file: a line of the process, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    time: &'a str,
    /// Who wrote it.
    pub(crate) stream: Stream,
    /// Whether the process ended its line here.
    pub(crate) is_full: bool,
    /// What was written, without the end of the line.
    pub(crate) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line of the file, without its end. `None`: it is none.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let (time, rest) = word(line)?;
        let (stream, rest) = word(rest)?;
        // An empty line may lack the space behind the tags.
        let (tags, text) = word(rest).unwrap_or((rest, &[]));
        let stream = match stream {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // More tags may follow behind a colon.
        let is_full = match tags.split(|byte| *byte == b':').next()? {
            b"F" => true,
            b"P" => false,
            _ => return None,
        };
        let time = std::str::from_utf8(time).ok()?;
        Some(Self {
            time,
            stream,
            is_full,
            text,
        })
    }

    /// When it was written.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        self.time.parse().ok()
    }

    /// The moment as users see it: all digits, in the zone in which it was written.
    pub(crate) fn write_time(&self, out: &mut Vec<u8>) {
        // Date and time to the second, whatever follows.
        const SECONDS: usize = "2006-01-02T15:04:05".len();
        let (Some(seconds), Some(rest)) = (self.time.get(..SECONDS), self.time.get(SECONDS..))
        else {
            out.extend_from_slice(self.time.as_bytes());
            return;
        };
        let (fraction, zone) = match rest.strip_prefix('.') {
            None => ("", rest),
            Some(rest) => {
                let end = rest.find(|c: char| !c.is_ascii_digit());
                rest.split_at(end.unwrap_or(rest.len()))
            }
        };
        out.extend_from_slice(seconds.as_bytes());
        out.push(b'.');
        out.extend(
            fraction
                .bytes()
                .chain(std::iter::repeat(b'0'))
                .take(FRACTION_DIGITS),
        );
        out.extend_from_slice(zone.as_bytes());
    }
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_what_is_none_is_refused() {
        let line = Line::parse(b"2024-01-02T03:04:05.5Z stderr P:x a  b ").unwrap();
        assert_eq!((line.stream, line.is_full), (Stream::Stderr, false));
        assert_eq!(line.text, b"a  b ");
        let empty = Line::parse(b"2024-01-02T03:04:05Z stdout F").unwrap();
        assert_eq!((empty.is_full, empty.text), (true, &b""[..]));
        for bad in ["", "x", "t stdout", "t stdin F x", "t stdout X x"] {
            assert_eq!(Line::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn moments_are_shown_with_all_their_digits() {
        for (written, shown) in [
            ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000000000Z"),
            ("2024-01-02T03:04:05.12Z", "2024-01-02T03:04:05.120000000Z"),
            (
                "2024-01-02T03:04:05.123456789+02:00",
                "2024-01-02T03:04:05.123456789+02:00",
            ),
        ] {
            let text = format!("{written} stdout F x");
            let mut out = Vec::new();
            Line::parse(text.as_bytes()).unwrap().write_time(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }
}
