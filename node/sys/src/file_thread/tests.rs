use std::fs;

use super::*;

/// Both ways of serving must keep the same promises.
fn both() -> [FileThread; 2] {
    [
        FileThread::start().unwrap(),
        FileThread::start_plain().unwrap(),
    ]
}

#[tokio::test]
async fn what_is_written_durably_is_read_back() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let file = files.open(&path).await.unwrap();
        assert_eq!(file.len_at_open(), 0);
        let back = files
            .write_durably(&file, b"hello ".to_vec(), 0)
            .await
            .unwrap();
        assert_eq!(back, b"hello ", "the buffer comes back");
        files
            .write_durably(&file, b"world".to_vec(), 6)
            .await
            .unwrap();
        files.write_durably(&file, Vec::new(), 11).await.unwrap();
        assert_eq!(
            files.read(&path).await.unwrap(),
            b"hello world",
            "{}",
            files.mode()
        );
        files.truncate(&file, 5).await.unwrap();
        files.sync(&file).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"hello");
        assert_eq!(files.open(&path).await.unwrap().len_at_open(), 5);
    }
}

#[tokio::test]
async fn a_large_file_is_read_whole() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let bytes: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        files.write_atomic(&path, bytes.clone()).await.unwrap();
        assert!(
            files.read(&path).await.unwrap() == bytes,
            "{}",
            files.mode()
        );
        // A file whose length the kernel does not tell.
        assert!(
            !files
                .read(Path::new("/proc/self/status"))
                .await
                .unwrap()
                .is_empty()
        );
    }
}

#[tokio::test]
async fn an_atomic_write_replaces_and_leaves_no_temporary_file() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        files.write_atomic(&path, b"one".to_vec()).await.unwrap();
        files.write_atomic(&path, b"two".to_vec()).await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let moved = dir.path().join("moved");
        files.rename(&path, &moved).await.unwrap();
        files.remove(&moved).await.unwrap();
        files
            .remove(&moved)
            .await
            .expect("removing twice is no error");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn errors_name_the_call_and_the_file() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("missing");
        let error = files.read(&path).await.unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(
            error.to_string(),
            format!("read of {} failed", path.display())
        );
        files.create(&path).await.unwrap();
        assert!(matches!(
            files.create(&path).await,
            Err(FileError::Call { call: "open", source, .. })
                if source.kind() == io::ErrorKind::AlreadyExists
        ));
    }
}

#[tokio::test]
async fn many_requests_at_once_are_all_answered() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let file = files.open(&dir.path().join("many")).await.unwrap();
        let writes: Vec<_> = (0..1000_u64)
            .map(|index| {
                let (files, file) = (files.clone(), file.clone());
                tokio::spawn(async move {
                    files
                        .write(&file, index.to_le_bytes().to_vec(), index * 8)
                        .await
                        .unwrap();
                })
            })
            .collect();
        for write in writes {
            write.await.unwrap();
        }
        let expected: Vec<u8> = (0..1000_u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(files.read(file.path()).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn files_that_nobody_holds_are_closed() {
    for files in both() {
        let dir = tempfile::tempdir().unwrap();
        let open_in = |dir: &Path| {
            fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
                .filter(|path| path.starts_with(dir))
                .count()
        };
        for index in 0..100 {
            files
                .open(&dir.path().join(index.to_string()))
                .await
                .unwrap();
        }
        // Only the last one: its place is taken when the next one is opened.
        assert!(open_in(dir.path()) <= 2, "{} are open", open_in(dir.path()));
    }
}
