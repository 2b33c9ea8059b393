//! Reads the files of a log one after another, a piece at a time.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use swiftlet_proto::log_options::LogOptions;

use super::files::LogFiles;
use super::folder::LogFolder;
use super::line::Line;
use super::printer::Printer;
use super::tail::{Start, start_of_last};

/// Bytes that are printed before the reader gets them: enough for one write to a socket.
const PIECE_BYTES: usize = 32 << 10;

/// Bytes that are read before others may have the thread, printed or not.
const WORK_BYTES: usize = 4 << 20;

/// Longest line of a file in bytes; the rest of a longer one is left out. The runtime splits
/// lines at 16 KiB unless it is told otherwise (`max_container_log_line_size`).
const LINE_BYTES_MAX: usize = 4 << 20;

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more.
    More,
    /// This is all that is written so far.
    AtEnd,
    /// The reader has all that it asked for.
    Full,
}

/// One reader's place in a log.
pub(crate) struct Source {
    files: LogFiles,
    /// The first of `files` from where it is read.
    text: BufReader<Box<dyn Read + Send>>,
    /// The beginning of a line whose end is not written yet.
    line: Vec<u8>,
    printer: Printer,
}

impl Source {
    /// Opens the log of that name, at the place where what is wanted begins.
    pub(crate) fn open(
        folder: &Arc<LogFolder>,
        name: &str,
        options: &LogOptions,
        now: Timestamp,
    ) -> io::Result<Self> {
        let mut files = LogFiles::open(folder, name)?;
        let start = match options.tail_lines {
            Some(lines) => start_of_last(&files.files, lines)?,
            None => Start { file: 0, offset: 0 },
        };
        drop(files.files.drain(..start.file));
        let mut text = text_of(&files)?;
        io::copy(&mut text.by_ref().take(start.offset), &mut io::sink())?;
        Ok(Self {
            files,
            text,
            line: Vec::new(),
            printer: Printer::new(options, now),
        })
    }

    /// Reads on and prints.
    pub(crate) fn read(&mut self) -> io::Result<(Bytes, Progress)> {
        let (mut out, mut worked) = (Vec::new(), 0);
        let progress = loop {
            if self.printer.is_full() {
                break Progress::Full;
            }
            if out.len() >= PIECE_BYTES || worked >= WORK_BYTES {
                break Progress::More;
            }
            let read = read_line(&mut self.text, &mut self.line)?;
            if read == 0 {
                if self.next_file()? {
                    continue;
                }
                break Progress::AtEnd;
            }
            worked += read;
            let Some(line) = self.line.strip_suffix(b"\n") else {
                // The runtime is in the midst of writing it.
                continue;
            };
            if let Some(line) = Line::parse(line) {
                self.printer.print(&line, &mut out);
            }
            self.line.clear();
        };
        Ok((out.into(), progress))
    }

    /// Goes to the next file, if there is one.
    fn next_file(&mut self) -> io::Result<bool> {
        if self.files.files.len() < 2 {
            return Ok(false);
        }
        self.files.files.pop_front();
        self.begin_file()?;
        Ok(true)
    }

    fn begin_file(&mut self) -> io::Result<()> {
        self.text = text_of(&self.files)?;
        // A file is moved away between two lines; what is no line is nothing.
        self.line.clear();
        Ok(())
    }

    /// Whether the runtime writes to another file by now.
    pub(crate) fn is_rotated(&self) -> bool {
        self.files.is_rotated()
    }

    /// Goes on in the files that came after the one that has been read to its end.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        self.files.advance()?;
        self.begin_file()
    }
}

fn text_of(files: &LogFiles) -> io::Result<BufReader<Box<dyn Read + Send>>> {
    let first = files.files.front().ok_or(io::ErrorKind::NotFound)?;
    Ok(BufReader::new(first.text()?))
}

/// Reads to the end of a line or of the text, behind what stands in `line` already. Answers how
/// many bytes the text lost.
pub(crate) fn read_line(text: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let room = LINE_BYTES_MAX.saturating_sub(line.len()).max(1);
    let read = text.by_ref().take(room as u64).read_until(b'\n', line)?;
    if read < room || line.ends_with(b"\n") {
        return Ok(read);
    }
    // Too long: what follows up to the end of the line is read and forgotten.
    let mut lost = read;
    loop {
        let buffer = text.fill_buf()?;
        if buffer.is_empty() || lost >= WORK_BYTES {
            // Its end is not written yet, or far; what comes is forgotten by the next call.
            line.truncate(LINE_BYTES_MAX - 1);
            return Ok(lost);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(buffer.len(), |end| end + 1);
        text.consume(length);
        lost += length;
        if end.is_some() {
            line.push(b'\n');
            return Ok(lost);
        }
    }
}
