//! What a reader sees of the lines of a file. Pure.
//!
//! Rules: `logWriter` in `pkg/kubelet/kuberuntime/logs/logs.go` of Kubernetes.

use jiff::Timestamp;
use swiftlet_proto::log_options::{LogOptions, LogStreams};

use super::line::{Line, Stream};

/// What becomes of the line of which parts have been seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Open {
    /// The next part is the first of a line.
    #[default]
    No,
    /// Parts are shown until its end.
    Shown,
    /// Parts are left out until its end.
    LeftOut,
}

/// Turns lines of the file into what the reader asked for.
#[derive(Debug)]
pub(crate) struct Printer {
    timestamps: bool,
    streams: LogStreams,
    since: Option<Timestamp>,
    /// Bytes that may still be printed.
    left: u64,
    stdout: Open,
    stderr: Open,
}

impl Printer {
    pub(crate) fn new(options: &LogOptions, now: Timestamp) -> Self {
        Self {
            timestamps: options.timestamps,
            streams: options.streams,
            since: options.since(now),
            left: options.limit_bytes.unwrap_or(u64::MAX),
            stdout: Open::No,
            stderr: Open::No,
        }
    }

    /// Whether the reader has all that it asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Prints a line of the file.
    pub(crate) fn print(&mut self, line: &Line<'_>, out: &mut Vec<u8>) {
        let open = match line.stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let is_first = *open == Open::No;
        if is_first {
            let is_wanted = match self.streams {
                LogStreams::All => true,
                LogStreams::Stdout => line.stream == Stream::Stdout,
                LogStreams::Stderr => line.stream == Stream::Stderr,
            };
            // A moment that cannot be read leaves nothing out.
            let is_old = self
                .since
                .is_some_and(|since| line.at().is_some_and(|at| at < since));
            *open = if is_wanted && !is_old {
                Open::Shown
            } else {
                Open::LeftOut
            };
        }
        let is_shown = *open == Open::Shown;
        if line.is_full {
            *open = Open::No;
        }
        if !is_shown {
            return;
        }
        let before = out.len();
        if is_first && self.timestamps {
            line.write_time(out);
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if line.is_full {
            out.push(b'\n');
        }
        let printed = (out.len() - before) as u64;
        if printed > self.left {
            let left = usize::try_from(self.left).unwrap_or(usize::MAX);
            out.truncate(before + left);
        }
        self.left = self.left.saturating_sub(printed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(options: &LogOptions, lines: &[&str]) -> String {
        let mut printer = Printer::new(options, Timestamp::UNIX_EPOCH);
        let mut out = Vec::new();
        for line in lines {
            printer.print(&Line::parse(line.as_bytes()).unwrap(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    const LINES: [&str; 4] = [
        "2024-01-01T00:00:01Z stdout P one ",
        "2024-01-01T00:00:03Z stdout F line",
        "2024-01-01T00:00:02Z stderr F two",
        "2024-01-01T00:00:04Z stdout F three",
    ];

    #[test]
    fn parts_are_one_line_with_one_moment() {
        let options = LogOptions::default();
        assert_eq!(printed(&options, &LINES), "one line\ntwo\nthree\n");
        let options = LogOptions {
            timestamps: true,
            ..options
        };
        let text = printed(&options, &LINES);
        assert!(
            text.starts_with("2024-01-01T00:00:01.000000000Z one line\n2024"),
            "{text}"
        );
    }

    #[test]
    fn old_lines_other_streams_and_what_is_too_much_are_left_out() {
        let parse = |pairs: &[(&str, &str)]| LogOptions::parse(pairs.iter().copied()).unwrap();
        // The first line began before, whenever it ended.
        let since = parse(&[("sinceTime", "2024-01-01T00:00:02Z")]);
        assert_eq!(printed(&since, &LINES), "two\nthree\n");
        let stdout = parse(&[("stream", "Stdout")]);
        assert_eq!(printed(&stdout, &LINES), "one line\nthree\n");
        let limited = parse(&[("limitBytes", "11")]);
        assert_eq!(printed(&limited, &LINES), "one line\ntw");
    }
}
