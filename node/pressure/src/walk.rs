//! How much lies below a folder, counted within limits: what a pod writes, nobody has limited, and
//! a look at one pod must not keep the node from looking at the others. A count that is broken off
//! is a lower bound, which is enough to see who is over a limit.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use swiftlet_model::node_stats::DiskUse;
use swiftlet_sys::beneath;
use swiftlet_sys::walk::{self, Next};

/// Files and folders of one part of a pod's disk (a volume, a layer, a log) that are counted at
/// most. Measured on the reference machine: some
/// three microseconds each.
const ENTRIES_MAX: usize = 500_000;
/// How long one part is counted at most; a disk that is full may be slow as well.
const TIME_MAX: Duration = Duration::from_secs(3);
/// The clock is looked at once for so many entries.
const ENTRIES_PER_LOOK: usize = 256;
/// What `st_blocks` counts. Source: stat(2).
const BLOCK_BYTES: u64 = 512;

/// What is left to be counted of one part.
#[derive(Debug)]
pub(crate) struct Budget {
    entries: usize,
    until: Instant,
    /// Something was not counted.
    spent: bool,
}

impl Budget {
    /// For one part.
    pub(crate) fn of_part() -> Self {
        Self::new(ENTRIES_MAX, TIME_MAX)
    }

    pub(crate) fn new(entries: usize, time: Duration) -> Self {
        Self {
            entries,
            until: Instant::now() + time,
            spent: false,
        }
    }

    /// Whether something was left out.
    pub(crate) fn is_spent(&self) -> bool {
        self.spent
    }

    fn take(&mut self) -> bool {
        let looks = self.entries.is_multiple_of(ENTRIES_PER_LOOK);
        self.spent |= self.entries == 0 || (looks && Instant::now() >= self.until);
        self.entries = self.entries.saturating_sub(1);
        !self.spent
    }
}

/// Everything below, links not followed, on this device alone, a file with many names once. What
/// vanishes meanwhile uses nothing.
pub(crate) fn usage(folder: &Path, budget: &mut Budget) -> DiskUse {
    let mut total = single(folder);
    let Ok(top) = beneath::find(folder) else {
        return total;
    };
    let device = top.facts.identity.0;
    let mut seen = HashSet::new();
    // One more, so that a folder of which not all is shown spends the budget.
    let names_max = budget.entries.saturating_add(1);
    let walked = walk::walk_some(folder, names_max, |step| {
        let facts = step.facts;
        if step.is_end() {
            return Ok(Next::Pass);
        }
        if !budget.take() {
            return Ok(Next::Stop);
        }
        let is_counted = !facts.is_folder && facts.names > 1 && !seen.insert(facts.identity);
        if facts.identity.0 != device || is_counted {
            return Ok(Next::Pass);
        }
        total += DiskUse {
            bytes: facts.bytes,
            inodes: 1,
        };
        Ok(Next::Enter)
    });
    if let Err(error) = walked {
        tracing::warn!(folder = %folder.display(), %error, "not all that a pod wrote is counted");
    }
    total
}

/// One file; nothing if there is none.
pub(crate) fn single(path: &Path) -> DiskUse {
    let found = fs::symlink_metadata(path).ok();
    found.map_or_else(DiskUse::default, |file| DiskUse {
        bytes: file.blocks().saturating_mul(BLOCK_BYTES),
        inodes: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_too_deep_to_be_counted() {
        let root = tempfile::tempdir().unwrap();
        let data = root.path().join("data");
        fs::create_dir(&data).unwrap();
        let mut top = data.clone();
        // Each step moves what there is one folder down: the paths stay short.
        fs::write(top.join("file"), vec![1; 200_000]).unwrap();
        for _ in 0..2000 {
            let (new, old) = (root.path().join("new"), root.path().join("old"));
            fs::create_dir(&new).unwrap();
            fs::rename(&top, new.join("folder-with-a-name")).unwrap();
            fs::rename(&new, &old).unwrap();
            top = old;
        }
        let mut budget = Budget::of_part();
        let used = usage(&top, &mut budget);
        assert!(used.bytes >= 200_000, "{used:?}");
        assert_eq!(used.inodes, 2002);
        assert!(!budget.is_spent());
        beneath::remove_tree(root.path()).unwrap();
    }

    #[test]
    fn a_count_that_is_broken_off_is_a_lower_bound_and_says_so() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(root.path().join(number.to_string()), "x").unwrap();
        }
        let mut budget = Budget::new(100, TIME_MAX);
        assert_eq!(usage(root.path(), &mut budget).inodes, 101);
        assert!(!budget.is_spent());
        let mut budget = Budget::new(60, TIME_MAX);
        assert_eq!(usage(root.path(), &mut budget).inodes, 61);
        assert!(budget.is_spent());
        // What is left of a budget that is spent is nothing, for whatever comes next.
        assert_eq!(usage(root.path(), &mut budget).inodes, 1);
        let mut late = Budget::new(512, Duration::ZERO);
        assert_eq!(usage(root.path(), &mut late).inodes, 1);
        assert!(late.is_spent());
    }
}
