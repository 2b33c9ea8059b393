//! `evictionHard`, `evictionSoft` and their like, read from what a user wrote.

use std::collections::BTreeMap;
use std::time::Duration;

use swiftlet_proto::quantity::Quantity;

use crate::eviction::watchdog::Signal;
use crate::node_status::Amount;

/// `evictionPressureTransitionPeriod` where nothing is said.
const PRESSURE_TRANSITION: Duration = Duration::from_mins(5);

/// `evictionHard` where nothing is said (`pkg/kubelet/apis/config/v1beta1/defaults_linux.go`).
const HARD_DEFAULTS: [(&str, &str); 4] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
];

/// An amount, or a share of the capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Bytes, inodes or processes.
    Amount(u64),
    /// Percent of the capacity.
    Percent(f64),
}

impl Value {
    /// What that is of this capacity.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a disk is not meant to the byte, and is never negative"
    )]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }
}

/// When the node is short of something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// Of what.
    pub signal: Signal,
    /// Less than this is too little.
    pub value: Value,
    /// How long it may be too little; nothing for a hard threshold.
    pub grace: Option<Duration>,
    /// How much more than the threshold must be free again.
    pub min_reclaim: Option<Value>,
}

/// How the node evicts.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionOptions {
    /// All thresholds.
    pub thresholds: Vec<Threshold>,
    /// `evictionMaxPodGracePeriod`: for pods that a soft threshold ends.
    pub max_pod_grace: Duration,
    /// `evictionPressureTransitionPeriod`: how long a condition stays.
    pub pressure_transition: Duration,
}

impl Default for EvictionOptions {
    fn default() -> Self {
        let texts = EvictionTexts::default();
        Self {
            thresholds: texts.thresholds().unwrap_or_default(),
            max_pod_grace: Duration::ZERO,
            pressure_transition: PRESSURE_TRANSITION,
        }
    }
}

impl EvictionOptions {
    /// What pods must leave alone so that no hard threshold is met.
    pub fn reserved(&self, capacity: &Amount) -> Amount {
        let hard = |signal: Signal, of: i64| {
            let mut all = self.thresholds.iter();
            let found = all.find(|one| one.signal == signal && one.grace.is_none());
            let bytes = found.map_or(0, |one| one.value.of(u64::try_from(of).unwrap_or_default()));
            i64::try_from(bytes).unwrap_or(i64::MAX)
        };
        Amount {
            cpu_milli: 0,
            memory_bytes: hard(Signal::MemoryAvailable, capacity.memory_bytes),
            ephemeral_storage_bytes: hard(
                Signal::NodefsAvailable,
                capacity.ephemeral_storage_bytes,
            ),
        }
    }
}

/// The four maps of a `KubeletConfiguration`, from signal to text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionTexts {
    /// `evictionHard`.
    pub hard: BTreeMap<String, String>,
    /// `evictionSoft`.
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`, as durations.
    pub soft_grace: BTreeMap<String, Duration>,
    /// `evictionMinimumReclaim`.
    pub min_reclaim: BTreeMap<String, String>,
}

impl Default for EvictionTexts {
    fn default() -> Self {
        let hard = HARD_DEFAULTS.map(|(signal, value)| (signal.to_owned(), value.to_owned()));
        Self {
            hard: hard.into(),
            soft: BTreeMap::new(),
            soft_grace: BTreeMap::new(),
            min_reclaim: BTreeMap::new(),
        }
    }
}

/// What cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// A signal that there is not.
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    /// An amount that is none.
    #[error("eviction value {text} of {signal} is neither an amount nor a percentage")]
    Value {
        /// The signal.
        signal: String,
        /// What was written.
        text: String,
    },
    /// A soft threshold without its grace period.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    Grace(String),
}

impl EvictionTexts {
    /// Reads all four.
    pub fn thresholds(&self) -> Result<Vec<Threshold>, ThresholdError> {
        let mut all = Vec::new();
        for (maps, soft) in [(&self.hard, false), (&self.soft, true)] {
            for (name, text) in maps {
                let signal = signal(name)?;
                let grace = self.soft_grace.get(name).copied();
                if soft && grace.is_none() {
                    return Err(ThresholdError::Grace(name.clone()));
                }
                let min_reclaim = self.min_reclaim.get(name);
                let min_reclaim = min_reclaim.map(|text| value(name, text)).transpose()?;
                let value = value(name, text)?;
                // 0 % and 100 % switch a threshold off, as in Kubernetes. What containers share
                // with the node or the images has no threshold of its own.
                let off = matches!(value, Value::Percent(share) if share <= 0.0 || share >= 100.0);
                if let (Some(signal), false) = (signal, off) {
                    all.push(Threshold {
                        signal,
                        value,
                        grace: grace.filter(|_| soft),
                        min_reclaim,
                    });
                }
            }
        }
        Ok(all)
    }
}

/// `None`: the containers' own file system, which is always one of the two others here.
fn signal(name: &str) -> Result<Option<Signal>, ThresholdError> {
    if name.starts_with("containerfs.") {
        tracing::warn!(
            name,
            "follows nodefs or imagefs and has no threshold of its own"
        );
        return Ok(None);
    }
    let signal = Signal::parse(name).ok_or_else(|| ThresholdError::Signal(name.to_owned()))?;
    Ok(Some(signal))
}

fn value(signal: &str, text: &str) -> Result<Value, ThresholdError> {
    let wrong = || ThresholdError::Value {
        signal: signal.to_owned(),
        text: text.to_owned(),
    };
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        return if percent.is_finite() && percent >= 0.0 {
            Ok(Value::Percent(percent))
        } else {
            Err(wrong())
        };
    }
    let amount = Quantity::parse(text).map_err(|_| wrong())?.value();
    u64::try_from(amount)
        .map(Value::Amount)
        .map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(hard: &[(&str, &str)]) -> EvictionTexts {
        let hard = hard.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        EvictionTexts {
            hard: hard.collect(),
            ..EvictionTexts::default()
        }
    }

    #[test]
    fn the_defaults_are_kubelets() {
        let options = EvictionOptions::default();
        let memory = options.thresholds.iter();
        let memory = memory
            .clone()
            .find(|one| one.signal == Signal::MemoryAvailable);
        assert_eq!(memory.unwrap().value, Value::Amount(100 << 20));
        assert_eq!(options.thresholds.len(), 4);
        let capacity = Amount {
            cpu_milli: 1000,
            memory_bytes: 1 << 30,
            ephemeral_storage_bytes: 1000,
        };
        let reserved = options.reserved(&capacity);
        assert_eq!(reserved.memory_bytes, 100 << 20);
        assert_eq!(reserved.ephemeral_storage_bytes, 100);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let wrong = |hard: &[(&str, &str)]| texts(hard).thresholds().unwrap_err().to_string();
        assert!(wrong(&[("memory.free", "1Mi")]).contains("memory.free"));
        assert!(wrong(&[("memory.available", "-1")]).contains("-1"));
        assert!(wrong(&[("nodefs.available", "x%")]).contains("x%"));
        let soft = EvictionTexts {
            soft: [("memory.available".to_owned(), "1Gi".to_owned())].into(),
            ..EvictionTexts::default()
        };
        assert_eq!(
            soft.thresholds().unwrap_err(),
            ThresholdError::Grace("memory.available".into())
        );
    }

    #[test]
    fn nothing_and_everything_switch_a_threshold_off() {
        let off = texts(&[("nodefs.available", "0%"), ("imagefs.available", "100%")]);
        assert!(off.thresholds().unwrap().is_empty());
    }
}
