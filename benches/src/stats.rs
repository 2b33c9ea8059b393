//! Samples and their percentiles.

use std::time::Duration;

use serde_json::{Value, json};

/// Samples of one figure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples {
    name: String,
    micros: Vec<u64>,
}

impl Samples {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            micros: Vec::new(),
        }
    }

    /// The same samples under another name.
    pub(crate) fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    pub(crate) fn push(&mut self, sample: Duration) {
        self.micros
            .push(u64::try_from(sample.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.micros.extend(other.micros);
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many times the other figure's median this one's is.
    pub(crate) fn ratio_of_medians(&self, other: &Self) -> f64 {
        self.percentile_ms(50) / other.percentile_ms(50)
    }

    pub(crate) fn len(&self) -> usize {
        self.micros.len()
    }

    /// The percentile in milliseconds, at index ceil(n·p/100)−1 of the sorted samples, as
    /// perf-tests takes it. 0 if there is no sample.
    pub(crate) fn percentile_ms(&self, percent: usize) -> f64 {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
        sorted.get(index).map_or(0.0, |micros| in_ms(*micros))
    }

    /// One line of the table.
    pub(crate) fn row(&self) -> String {
        format!(
            "{:<34} {:>5} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
            self.name,
            self.len(),
            self.percentile_ms(50),
            self.percentile_ms(90),
            self.percentile_ms(99),
            self.percentile_ms(100),
        )
    }

    /// One entry of PerfData's `dataItems`.
    pub(crate) fn perf_data(&self) -> Value {
        json!({
            "data": {
                "Perc50": self.percentile_ms(50),
                "Perc90": self.percentile_ms(90),
                "Perc99": self.percentile_ms(99),
            },
            "unit": "ms",
            "labels": {"Metric": self.name},
        })
    }
}

/// The head of the table.
pub(crate) fn head() -> String {
    format!(
        "{:<34} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "ms", "n", "p50", "p90", "p99", "max"
    )
}

/// Prints all figures, as a table or as PerfData.
pub(crate) fn print(samples: &[&Samples], failures: usize, json: bool) {
    if json {
        let items: Vec<Value> = samples.iter().map(|samples| samples.perf_data()).collect();
        let labels = json!({"failures": failures.to_string()});
        println!(
            "{}",
            json!({"version": "v1", "dataItems": items, "labels": labels})
        );
        return;
    }
    println!("{}", head());
    for samples in samples {
        println!("{}", samples.row());
    }
    println!("failures: {failures}");
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a latency in µs is far below 2^52"
)]
fn in_ms(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_perf_tests() {
        let mut samples = Samples::new("x");
        for ms in 1..=10 {
            samples.push(Duration::from_millis(ms));
        }
        let at = |percent| samples.percentile_ms(percent).to_string();
        assert_eq!([at(50), at(90), at(99), at(100)], ["5", "9", "10", "10"]);
        assert_eq!(Samples::new("none").percentile_ms(50).to_string(), "0");
    }
}
