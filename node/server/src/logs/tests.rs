//! A log is written, split, rotated and compressed in all ways; what is read stays the same.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use proptest::prelude::*;
use swiftlet_model::runtime::ContainerState;
use swiftlet_proto::log_options::LogOptions;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::folder::LogFolder;
use super::follow::{self, LOOK_AGAIN, Log};
use super::source::{Progress, Source};

/// A log on disk.
struct Written {
    _folder: TempDir,
    path: PathBuf,
    rotations: u32,
}

impl Written {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        File::create(&path).unwrap();
        Self {
            _folder: folder,
            path,
            rotations: 0,
        }
    }

    fn append(&self, bytes: &[u8]) {
        let mut file = File::options().append(true).open(&self.path).unwrap();
        file.write_all(bytes).unwrap();
    }

    fn line(&self, is_full: bool, text: &str) {
        let tag = if is_full { "F" } else { "P" };
        self.append(format!("2024-01-02T03:04:05.5Z stdout {tag} {text}\n").as_bytes());
    }

    /// As the node's rotation does it.
    fn rotate(&mut self) -> PathBuf {
        self.rotations += 1;
        let name = format!("0.log.20240102-0304{:02}", self.rotations);
        let rotated = self.path.with_file_name(name);
        fs::rename(&self.path, &rotated).unwrap();
        File::create(&self.path).unwrap();
        rotated
    }
}

fn compress(file: &Path) {
    let target = file.with_file_name(format!("{}.gz", file.file_name().unwrap().display()));
    let mut gzip = GzEncoder::new(File::create(target).unwrap(), Compression::fast());
    gzip.write_all(&fs::read(file).unwrap()).unwrap();
    gzip.finish().unwrap();
    fs::remove_file(file).unwrap();
}

fn rest(source: &mut Source) -> String {
    let mut all = Vec::new();
    loop {
        let (text, progress) = source.read().unwrap();
        all.extend_from_slice(&text);
        if progress != Progress::More {
            return String::from_utf8(all).unwrap();
        }
    }
}

fn folder(path: &Path) -> Arc<LogFolder> {
    Arc::new(LogFolder::open(path.parent().unwrap(), &[]).unwrap())
}

fn open(path: &Path, options: &LogOptions) -> Source {
    Source::open(&folder(path), "0.log", options, Timestamp::now()).unwrap()
}

fn read(path: &Path, options: &LogOptions) -> String {
    rest(&mut open(path, options))
}

fn last(lines: usize) -> LogOptions {
    LogOptions {
        tail_lines: Some(lines),
        ..LogOptions::default()
    }
}

/// One thing that happens to a log.
#[derive(Clone, Debug)]
enum Step {
    /// A part of a line, or its end.
    Write(bool, String),
    Rotate,
    RotateAndCompress,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (any::<bool>(), "[a-zä ]{0,12}").prop_map(|(full, text)| Step::Write(full, text));
    let step = prop_oneof![8 => write, 1 => Just(Step::Rotate), 1 => Just(Step::RotateAndCompress)];
    proptest::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn any_split_into_parts_and_files_gives_the_same_text(steps in steps(), lines in 0usize..12) {
        let mut log = Written::new();
        let mut expected = String::new();
        for step in &steps {
            match step {
                Step::Write(is_full, text) => {
                    log.line(*is_full, text);
                    expected.push_str(text);
                    expected.push_str(if *is_full { "\n" } else { "" });
                }
                Step::Rotate => drop(log.rotate()),
                Step::RotateAndCompress => compress(&log.rotate()),
            }
        }
        prop_assert_eq!(&read(&log.path, &LogOptions::default()), &expected);
        // An empty part at the end is a line that has begun, though nothing of it is to be seen.
        let last_write = steps.iter().rev().find_map(|step| match step {
            Step::Write(is_full, _) => Some(*is_full),
            _ => None,
        });
        let ended = expected.matches('\n').count();
        let all = ended + usize::from(last_write == Some(false));
        let skipped = all.saturating_sub(lines);
        let begins = expected.match_indices('\n').map(|(at, _)| at + 1);
        let begins = std::iter::once(0).chain(begins).nth(skipped);
        let tail = begins.map_or("", |at| &expected[at..]);
        prop_assert_eq!(read(&log.path, &last(lines)), tail);
    }

    #[test]
    fn what_is_read_while_it_is_written_is_all_of_it(
        steps in steps(),
        cuts in proptest::collection::vec(1usize..40, 0..60),
    ) {
        let mut log = Written::new();
        let mut source = open(&log.path, &LogOptions::default());
        let (mut expected, mut got) = (String::new(), String::new());
        let mut cuts = cuts.into_iter();
        for step in &steps {
            match step {
                Step::Write(is_full, text) => {
                    let tag = if *is_full { "F" } else { "P" };
                    let line = format!("2024-01-02T03:04:05Z stderr {tag} {text}\n");
                    // The reader sees the file in the midst of a line.
                    let cut = cuts.next().unwrap_or(line.len()).min(line.len());
                    log.append(&line.as_bytes()[..cut]);
                    got += &rest(&mut source);
                    log.append(&line.as_bytes()[cut..]);
                    expected.push_str(text);
                    expected.push_str(if *is_full { "\n" } else { "" });
                }
                Step::Rotate => drop(log.rotate()),
                Step::RotateAndCompress => {
                    let rotated = log.rotate();
                    got += &rest(&mut source);
                    compress(&rotated);
                }
            }
            if cuts.next().is_some() {
                got += &rest(&mut source);
                while source.is_rotated() {
                    got += &rest(&mut source);
                    source.advance().unwrap();
                    got += &rest(&mut source);
                }
            }
        }
        while source.is_rotated() {
            got += &rest(&mut source);
            source.advance().unwrap();
        }
        got += &rest(&mut source);
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn a_file_that_is_compressed_twice_over_counts_once() {
    let mut log = Written::new();
    log.line(true, "one");
    let rotated = log.rotate();
    let again = fs::read(&rotated).unwrap();
    compress(&rotated);
    // The compression was interrupted before it removed what it had read.
    fs::write(&rotated, again).unwrap();
    fs::write(rotated.with_file_name("0.log.20240102-030499.tmp"), "x").unwrap();
    log.line(true, "two");
    assert_eq!(read(&log.path, &LogOptions::default()), "one\ntwo\n");
    assert_eq!(read(&log.path, &last(1)), "two\n");
}

#[test]
fn a_log_between_two_files_is_what_was_moved_away() {
    let mut log = Written::new();
    log.line(true, "one");
    log.rotate();
    fs::remove_file(&log.path).unwrap();
    let mut source = open(&log.path, &LogOptions::default());
    assert_eq!(rest(&mut source), "one\n");
    assert!(!source.is_rotated());
    File::create(&log.path).unwrap();
    log.line(true, "two");
    assert!(source.is_rotated());
    source.advance().unwrap();
    assert_eq!(rest(&mut source), "two\n");
}

#[test]
fn a_line_that_is_too_long_ends_where_the_limit_is() {
    let log = Written::new();
    log.line(true, &"x".repeat(5 << 20));
    log.line(true, "next");
    let text = read(&log.path, &LogOptions::default());
    assert!(text.len() < 5 << 20);
    assert!(text.ends_with("xx\nnext\n"));
}

#[test]
fn a_line_without_an_end_is_read_a_part_at_a_time() {
    let log = Written::new();
    let file = File::options().write(true).open(&log.path).unwrap();
    // Nothing but zeros, which take no room on the disk.
    file.set_len(40 << 20).unwrap();
    let mut source = open(&log.path, &LogOptions::default());
    let (text, progress) = source.read().unwrap();
    assert_eq!((text.len(), progress), (0, Progress::More));
    log.append(b"\n");
    log.line(true, "next");
    assert_eq!(rest(&mut source), "next\n");
}

#[tokio::test(start_paused = true)]
async fn following_ends_though_somebody_holds_the_log_of_a_container_that_has_ended() {
    let log = Written::new();
    log.line(true, "one");
    let held = File::options().append(true).open(&log.path).unwrap();
    let state = Arc::new(std::sync::Mutex::new(ContainerState::Running));
    let shown = Arc::clone(&state);
    let followed = Log {
        folder: folder(&log.path),
        name: "0.log".into(),
        state: Box::new(move || {
            let state = shown.lock().unwrap().clone();
            Box::pin(async move { Ok(state) })
        }),
        shutdown: CancellationToken::new(),
    };
    let options = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut pieces = follow::open(followed, options).await.unwrap();
    assert_eq!(pieces.recv().await.unwrap().unwrap(), "one\n");
    let more = tokio::time::timeout(2 * LOOK_AGAIN, pieces.recv());
    assert!(more.await.is_err(), "it runs");
    *state.lock().unwrap() = ContainerState::Exited;
    let end = tokio::time::timeout(2 * LOOK_AGAIN, pieces.recv());
    assert!(end.await.expect("it has ended").is_none());
    drop(held);
}
