//! Where the last lines of a log begin.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};

use super::files::LogFile;
use super::line::Line;
use super::source::read_line;

/// A place in the files of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Which file.
    pub(crate) file: usize,
    /// Bytes of its text before it; more than there are for its end.
    pub(crate) offset: u64,
}

/// The place at which the last `lines` lines begin. The newest file is looked at first, and older
/// ones only while lines are missing. What the process has not ended yet counts as a line.
pub(crate) fn start_of_last(files: &VecDeque<LogFile>, lines: usize) -> io::Result<Start> {
    if lines == 0 {
        return Ok(Start {
            file: files.len().saturating_sub(1),
            offset: u64::MAX,
        });
    }
    let mut missing = lines;
    let mut is_newest = true;
    for (number, file) in files.iter().enumerate().rev() {
        let ends = ends(BufReader::new(file.text()?), missing)?;
        if is_newest && ends.has_text {
            is_newest = false;
            // The last line is open: it is one of those that are wanted.
            missing = missing.saturating_sub(usize::from(ends.is_open));
        }
        // The line begins behind the end of the one before.
        if ends.count > missing {
            let at = ends.last.len() - 1 - missing;
            return Ok(Start {
                file: number,
                offset: ends.last[at],
            });
        }
        missing -= ends.count;
    }
    Ok(Start { file: 0, offset: 0 })
}

struct Ends {
    /// How many lines end in the text.
    count: usize,
    /// Where the last of them end, at most one more than asked for.
    last: VecDeque<u64>,
    /// Whether there is any text.
    has_text: bool,
    /// Whether the text goes on behind the last end.
    is_open: bool,
}

fn ends(mut text: impl BufRead, keep: usize) -> io::Result<Ends> {
    let mut ends = Ends {
        count: 0,
        last: VecDeque::new(),
        has_text: false,
        is_open: false,
    };
    let (mut offset, mut line) = (0u64, Vec::new());
    loop {
        line.clear();
        let read = read_line(&mut text, &mut line)?;
        if read == 0 {
            return Ok(ends);
        }
        offset += read as u64;
        let parsed = line.strip_suffix(b"\n").and_then(Line::parse);
        let Some(parsed) = parsed else {
            continue;
        };
        ends.has_text = true;
        ends.is_open = !parsed.is_full;
        if parsed.is_full {
            ends.count += 1;
            ends.last.push_back(offset);
            if ends.last.len() > keep.saturating_add(1) {
                ends.last.pop_front();
            }
        }
    }
}
