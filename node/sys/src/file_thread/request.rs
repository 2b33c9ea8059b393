//! What the thread can be asked, and the files that it holds open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::FileError;

/// Where the answer goes. Nobody may be waiting any more; then it is dropped.
pub(super) type Reply<T> = oneshot::Sender<Result<T, FileError>>;

/// Number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId(u64);

/// Lives as long as somebody holds the open file.
#[derive(Debug)]
pub(super) struct Token;

/// Everything that the thread can be asked.
#[derive(Debug)]
pub(super) enum Request {
    Open {
        path: PathBuf,
        reply: Reply<(FileId, Arc<Token>, u64)>,
    },
    Create {
        path: PathBuf,
        reply: Reply<(FileId, Arc<Token>, u64)>,
    },
    Write {
        file: FileId,
        bytes: Vec<u8>,
        offset: u64,
        sync: bool,
        reply: Reply<Vec<u8>>,
    },
    Sync {
        file: FileId,
        reply: Reply<()>,
    },
    Truncate {
        file: FileId,
        len: u64,
        reply: Reply<()>,
    },
    Read {
        path: PathBuf,
        reply: Reply<Vec<u8>>,
    },
    WriteAtomic {
        path: PathBuf,
        bytes: Vec<u8>,
        reply: Reply<()>,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
        reply: Reply<()>,
    },
    Remove {
        path: PathBuf,
        reply: Reply<()>,
    },
}

/// The files that are open. `F` is what one of the two ways of serving keeps for a file.
pub(super) struct Table<F> {
    files: HashMap<FileId, (F, Weak<Token>)>,
    next: u64,
}

impl<F> Table<F> {
    pub(super) fn new() -> Self {
        Self {
            files: HashMap::new(),
            next: 0,
        }
    }

    /// Takes a file in, and closes those that nobody holds any more.
    pub(super) fn insert(&mut self, file: F) -> (FileId, Arc<Token>) {
        self.files.retain(|_, (_, token)| token.strong_count() > 0);
        let id = FileId(self.next);
        self.next += 1;
        let token = Arc::new(Token);
        self.files.insert(id, (file, Arc::downgrade(&token)));
        (id, token)
    }

    /// The file of a handle. It may be gone if the one who asked has dropped the handle and
    /// with it the interest in the answer.
    pub(super) fn get(&self, id: FileId) -> Result<&F, FileError> {
        self.files
            .get(&id)
            .map(|(file, _)| file)
            .ok_or(FileError::Gone)
    }
}
