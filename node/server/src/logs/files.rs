//! The files of one container's log.
//!
//! ```text
//! 0.log.20240102-140405.gz   older ones, compressed
//! 0.log.20240102-150405      the one before
//! 0.log                      the runtime writes here
//! ```
//!
//! Names sort by the moment at which a file was moved away. All are opened at once: an open file
//! can be read to its end, whatever becomes of its name.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::folder::LogFolder;

/// Ending of a compressed file.
const COMPRESSED: &str = ".gz";
/// Ending of one that is being compressed.
const UNFINISHED: &str = ".tmp";
/// How often the folder is looked at until it stays the same for as long as a look takes. A
/// rotation renames, reopens and compresses three times at most.
const LOOKS_MAX: u32 = 20;
/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// A file of the log, open.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: File,
    is_compressed: bool,
    inode: u64,
}

impl LogFile {
    fn open(folder: &LogFolder, name: &str) -> io::Result<Self> {
        let file = folder.file(name)?;
        let inode = file.metadata()?.ino();
        let is_compressed = name.ends_with(COMPRESSED);
        Ok(Self {
            file,
            is_compressed,
            inode,
        })
    }

    /// Reads it from the start.
    pub(crate) fn text(&self) -> io::Result<Box<dyn Read + Send>> {
        let mut file = self.file.try_clone()?;
        // Clones share their place in the file.
        io::Seek::rewind(&mut file)?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(if self.is_compressed {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        })
    }
}

/// All files of a log as they were at one moment.
#[derive(Debug)]
pub(crate) struct LogFiles {
    folder: Arc<LogFolder>,
    name: String,
    /// What was moved away, by name without [`COMPRESSED`]: nothing of it is read twice.
    known: BTreeSet<String>,
    /// Whether the last file is one of those: the runtime had not made the next one yet.
    ends_with_known: bool,
    /// Oldest first, the one that is written to last.
    pub(crate) files: VecDeque<LogFile>,
}

impl LogFiles {
    /// Opens all files of the log; there is at least one.
    pub(crate) fn open(folder: &Arc<LogFolder>, name: &str) -> io::Result<Self> {
        let mut files = Self {
            folder: Arc::clone(folder),
            name: name.to_owned(),
            known: BTreeSet::new(),
            ends_with_known: true,
            files: VecDeque::new(),
        };
        files.advance()?;
        Ok(files)
    }

    /// Whether the last file is not the one that is written to any more. While the log has no file
    /// the runtime is about to make one.
    pub(crate) fn is_rotated(&self) -> bool {
        let inode = self.files.back().map(|file| file.inode);
        let now = self.folder.inode(&self.name);
        now.is_ok_and(|now| Some(now) != inode)
    }

    /// Goes on to the files after the last one: first those that came and went since, then the one
    /// that is written to now.
    pub(crate) fn advance(&mut self) -> io::Result<()> {
        let last = self.files.back().map(|file| file.inode);
        let (known, mut newer, has_current) = self.newer()?;
        if !self.ends_with_known {
            // The one that was written to is among them under its new name: the oldest of them,
            // by another inode if it is compressed by now.
            let at = newer.iter().position(|file| Some(file.inode) == last);
            let is_only_current = newer.len() == usize::from(has_current);
            match at {
                Some(at) => drop(newer.drain(..=at)),
                None if is_only_current => {}
                None => drop(newer.pop_front()),
            }
        }
        if newer.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.known = known;
        self.ends_with_known = !has_current;
        self.files = newer;
        Ok(())
    }

    /// Files whose names are not known, and the one that is written to if it is there.
    fn newer(&self) -> io::Result<Look> {
        for _ in 0..LOOKS_MAX {
            match self.look() {
                Ok(Some(look)) => return Ok(look),
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                // Something was moved away or compressed in the midst of the look.
                _ => std::thread::yield_now(),
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    /// One look; `None` if a rotation came in between.
    fn look(&self) -> io::Result<Option<Look>> {
        let current = match LogFile::open(&self.folder, &self.name) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut known = BTreeSet::new();
        let mut files = VecDeque::new();
        for name in self.rotated()? {
            let stem = name.strip_suffix(COMPRESSED).unwrap_or(&name).to_owned();
            if !self.known.contains(&stem) {
                files.push_back(LogFile::open(&self.folder, &name)?);
            }
            known.insert(stem);
        }
        let inode = current.as_ref().map(|file| file.inode);
        let is_moved = files.iter().any(|file| Some(file.inode) == inode);
        let has_current = current.is_some();
        files.extend(current);
        Ok((!is_moved).then_some((known, files, has_current)))
    }

    /// Names of what was moved away, oldest first. Of a file that is there twice, the compressed
    /// one is complete, and the other about to go.
    fn rotated(&self) -> io::Result<Vec<String>> {
        let beginning = format!("{}.", self.name);
        let mut names = BTreeSet::new();
        for name in self.folder.names()? {
            if name.starts_with(&beginning) && !name.ends_with(UNFINISHED) {
                names.insert(name);
            }
        }
        let is_double = |name: &String| names.contains(&format!("{name}{COMPRESSED}"));
        Ok(names
            .iter()
            .filter(|name| !is_double(name))
            .cloned()
            .collect())
    }
}

/// What is known then, the files, and whether the last one is the one that is written to.
type Look = (BTreeSet<String>, VecDeque<LogFile>, bool);
