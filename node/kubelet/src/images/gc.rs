//! Which images are removed. Pure.
//!
//! ```text
//! use ≥ high threshold ──▶ remove, longest unused first, until use = low threshold
//! unused longer than the maximum age ──▶ remove
//! ```
//!
//! Never removed: what a container (running or not) was made of, what the runtime wants to keep,
//! what has come a moment ago. Rules: `pkg/kubelet/images/image_gc_manager.go` of Kubernetes.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use swiftlet_model::node_stats::Level;
use swiftlet_model::runtime::{Image, RuntimePod};

use crate::images::reference::Reference;

/// When images are removed. Defaults: `pkg/kubelet/apis/config/v1beta1/defaults.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: from this use of the file system on; 100 for never.
    pub high_percent: u64,
    /// `imageGCLowThresholdPercent`: down to this use.
    pub low_percent: u64,
    /// `imageMinimumGCAge`: an image that was seen later for the first time stays.
    pub minimum_age: Duration,
    /// `imageMaximumGCAge`: an image that was not used for longer goes; `None` for never.
    pub maximum_age: Option<Duration>,
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            minimum_age: Duration::from_mins(2),
            maximum_age: None,
        }
    }
}

/// What is known of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ImageRecord {
    /// `None`: it was there before this program looked for the first time.
    first_seen: Option<Instant>,
    /// `None`: not since then.
    last_used: Option<Instant>,
    size_bytes: u64,
    pinned: bool,
}

/// What is known of all images.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageRecords {
    by_id: HashMap<String, ImageRecord>,
    /// When they were looked at for the first time.
    since: Option<Instant>,
}

/// An image that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) id: String,
    pub(crate) size_bytes: u64,
}

impl ImageRecords {
    /// Takes note of what is there and what is in use.
    pub(crate) fn observe(&mut self, images: &[Image], pods: &[RuntimePod], now: Instant) {
        let used = used_images(images, pods);
        let first_seen = self.since.map(|_| now);
        self.since.get_or_insert(now);
        let mut before = std::mem::take(&mut self.by_id);
        for image in images {
            let known = before.remove(&image.id);
            let mut record = known.unwrap_or(ImageRecord {
                first_seen,
                last_used: None,
                size_bytes: 0,
                pinned: false,
            });
            if used.contains(image.id.as_str()) {
                record.last_used = Some(now);
            }
            record.size_bytes = image.size_bytes;
            record.pinned = image.pinned;
            self.by_id.insert(image.id.clone(), record);
        }
    }

    /// An image has gone.
    pub(crate) fn removed(&mut self, id: &str) {
        self.by_id.remove(id);
    }

    /// Images that may go, as they were observed at `now`: longest unused first.
    pub(crate) fn unused(&self, policy: &ImageGcPolicy, now: Instant) -> Vec<Candidate> {
        self.candidates(now, |record| {
            let age = record
                .first_seen
                .map(|seen| now.saturating_duration_since(seen));
            age.is_none_or(|age| age >= policy.minimum_age)
        })
    }

    /// Images that go because nobody has used them for too long. How long that is, is not known
    /// before this program has watched for as long.
    pub(crate) fn outlived(&self, policy: &ImageGcPolicy, now: Instant) -> Vec<Candidate> {
        let (Some(limit), Some(since)) = (policy.maximum_age, self.since) else {
            return Vec::new();
        };
        self.candidates(now, |record| {
            let first = record.first_seen.unwrap_or(since);
            let last = record.last_used.map_or(first, |used| used.max(first));
            now.saturating_duration_since(last) > limit
        })
    }

    fn candidates(&self, now: Instant, may_go: impl Fn(&ImageRecord) -> bool) -> Vec<Candidate> {
        let in_use = |record: &ImageRecord| record.last_used.is_some_and(|used| used >= now);
        let all = self.by_id.iter();
        let mut all: Vec<_> = all
            .filter(|(_, record)| !record.pinned && !in_use(record) && may_go(record))
            .collect();
        // `None` comes before any time: before this program.
        all.sort_by_key(|(id, record)| (record.last_used, record.first_seen, *id));
        let candidate = |(id, record): (&String, &ImageRecord)| Candidate {
            id: id.clone(),
            size_bytes: record.size_bytes,
        };
        all.into_iter().map(candidate).collect()
    }
}

/// How many bytes shall be freed on the file system of images; 0 if it has enough.
pub(crate) fn bytes_to_free(policy: &ImageGcPolicy, disk: Level) -> u64 {
    let available = disk.available.min(disk.capacity);
    if policy.high_percent >= 100 || disk.capacity == 0 {
        return 0;
    }
    let percent = |part: u64, whole: u64| u128::from(part) * 100 / u128::from(whole);
    let used_percent = 100 - percent(available, disk.capacity);
    if used_percent < u128::from(policy.high_percent) {
        return 0;
    }
    let free_percent = u128::from(100_u64.saturating_sub(policy.low_percent));
    let wanted = u128::from(disk.capacity) * free_percent / 100;
    u64::try_from(wanted)
        .unwrap_or(u64::MAX)
        .saturating_sub(available)
}

/// Ids of the images that some container was made of. Runtimes name a container's image by its id,
/// by a digest or as the pod does: whatever fits counts.
fn used_images<'a>(images: &'a [Image], pods: &[RuntimePod]) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for container in pods.iter().flat_map(|pod| &pod.containers) {
        for name in [&container.image, &container.image_id] {
            names.insert(name.clone());
            names.extend(Reference::parse(name).map(|reference| reference.full()));
        }
    }
    let is_used = |image: &&Image| {
        let mut all = image.tags.iter().chain(&image.digests).chain([&image.id]);
        all.any(|name| names.contains(name))
    };
    let used = images.iter().filter(is_used);
    used.map(|image| image.id.as_str()).collect()
}

#[cfg(test)]
mod tests;
