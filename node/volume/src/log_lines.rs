//! The end of a container's log. Pure.
//!
//! ```text
//! 2026-11-30T09:00:00.000000000Z stdout F a whole line
//! 2026-11-30T09:00:00.000000000Z stderr P the beginning of a long line
//! 2026-11-30T09:00:00.000000000Z stderr F  and its end
//! ```
//!
//! Source: `pkg/kubelet/kuberuntime/logs` of Kubernetes; the parts of a long line that is written
//! to both streams at a time may lie between each other, and are shown as they lie.

/// Longest part of a line as containerd writes it (`max_container_log_line_size`), in bytes.
const PART_BYTES_MAX: usize = 16 << 10;
/// Stamp, stream, tag and blanks before a part, at most, in bytes.
const HEAD_BYTES_MAX: usize = 64;

/// How much of a log's end must be read for `tail`: all text that is asked for, with a head for
/// each line, behind one part that may be cut off.
pub(crate) fn window(lines_max: usize, bytes_max: usize) -> usize {
    let heads = lines_max.saturating_add(1).saturating_mul(HEAD_BYTES_MAX);
    bytes_max
        .saturating_add(heads)
        .saturating_add(2 * PART_BYTES_MAX)
}

/// The last lines, at most `bytes_max` of their end. `is_cut`: the first line has no beginning.
pub(crate) fn tail(log: &[u8], is_cut: bool, lines_max: usize, bytes_max: usize) -> String {
    let skipped = usize::from(is_cut);
    let raw = log.split_inclusive(|byte| *byte == b'\n').skip(skipped);
    let parts: Vec<Part<'_>> = raw.filter_map(part).collect();
    let mut text = Vec::new();
    for part in &parts[first_of_last_lines(&parts, lines_max)..] {
        text.extend_from_slice(part.text);
        if part.ends_line {
            text.push(b'\n');
        }
    }
    let start = text.len().saturating_sub(bytes_max);
    // A character that was cut in two is left out.
    let is_middle = |byte: &u8| byte & 0xc0 == 0x80;
    let middle = text[start..]
        .iter()
        .take_while(|byte| start > 0 && is_middle(byte));
    let start = start + middle.count();
    String::from_utf8_lossy(&text[start..]).into_owned()
}

/// A part of a line, or a whole one.
struct Part<'a> {
    text: &'a [u8],
    ends_line: bool,
}

/// Reads one line of the file; `None` if it is not of this format.
fn part(line: &[u8]) -> Option<Part<'_>> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (_stamp, stream) = (fields.next()?, fields.next()?);
    // The tag may have others behind it: `F:more`.
    let tag = fields.next()?.split(|byte| *byte == b':').next()?;
    let is_known = matches!(stream, b"stdout" | b"stderr") && matches!(tag, b"F" | b"P");
    is_known.then(|| Part {
        text: fields.next().unwrap_or_default(),
        ends_line: tag == b"F",
    })
}

/// Where the last `lines_max` lines begin. A part at the end that ends no line is one too.
fn first_of_last_lines(parts: &[Part<'_>], lines_max: usize) -> usize {
    let mut lines = 0;
    for (index, _) in parts.iter().enumerate().rev() {
        let is_last_part = index + 1 == parts.len() || parts[index].ends_line;
        if is_last_part {
            if lines == lines_max {
                return index + 1;
            }
            lines += 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(&str, &str)]) -> Vec<u8> {
        let line = |(tag, text): &(&str, &str)| {
            format!("2026-11-30T09:00:00.000000000Z stdout {tag} {text}\n")
        };
        lines.iter().map(line).collect::<String>().into_bytes()
    }

    #[test]
    fn stamps_are_removed_and_parts_are_joined() {
        let log = log(&[("F", "one"), ("P", "tw"), ("F", "o"), ("F", "")]);
        assert_eq!(tail(&log, false, 10, 100), "one\ntwo\n\n");
        assert_eq!(tail(&log, false, 2, 100), "two\n\n");
        assert_eq!(tail(&log, false, 0, 100), "");
    }

    #[test]
    fn a_line_without_its_beginning_is_left_out() {
        let log = log(&[("F", "one"), ("F", "two"), ("P", "thr")]);
        assert_eq!(tail(&log[5..], true, 10, 100), "two\nthr");
        assert_eq!(tail(&log, false, 1, 100), "thr");
    }

    #[test]
    fn the_end_is_what_stays_within_the_limit() {
        let log = log(&[("F", "a\u{e9}"), ("F", "end")]);
        assert_eq!(tail(&log, false, 10, 4), "end\n");
        assert_eq!(tail(&log, false, 10, 6), "\nend\n"[..5].to_owned());
        assert_eq!(tail(b"no log of ours\n", false, 10, 100), "");
    }
}
