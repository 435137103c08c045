//! Repeated measurements of one thing, and their median.

use serde::{Deserialize, Serialize};

/// Repeated measurements of one thing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored")]
pub struct Sample {
    /// The median, which stands for all.
    pub median: f64,
    /// Distance between the quartiles, as a part of the median; 0 where the median is 0.
    pub spread: f64,
    /// All of them, in the order they were taken.
    pub runs: Vec<f64>,
}

/// A sample as a file has it, not checked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    median: f64,
    spread: f64,
    runs: Vec<f64>,
}

impl TryFrom<Stored> for Sample {
    type Error = String;

    fn try_from(Stored { median, spread, runs }: Stored) -> Result<Self, String> {
        let Some(told) = Self::new(runs) else { return Err("a sample has no runs".to_owned()) };
        // Samples that were scaled differ in the last places.
        let largest = told.runs.iter().fold(0.0, |most: f64, run| most.max(run.abs()));
        if (median - told.median).abs() > 1e-9 * largest {
            return Err(format!("a sample says median {median}, but its runs have {}", told.median));
        }
        if spread < 0.0 {
            return Err(format!("a sample says spread {spread}"));
        }
        Ok(Self { median, spread, runs: told.runs })
    }
}

impl Sample {
    /// Spread above which a figure is called noisy.
    pub const NOISY: f64 = 0.15;

    /// A sample of these runs; `None` if there is none, or one is no number.
    pub fn new(runs: Vec<f64>) -> Option<Self> {
        if runs.is_empty() || runs.iter().any(|run| !run.is_finite()) {
            return None;
        }
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 1, 2);
        let distance = quantile(&sorted, 3, 4) - quantile(&sorted, 1, 4);
        let spread = Some((distance / median).abs()).filter(|spread| spread.is_finite()).unwrap_or(0.0);
        Some(Self { median, spread, runs })
    }

    /// How well the runs tell their median: half the width of its interval of 95 %, as a part of it, of runs that scatter normally
    /// with these quartiles (1.96 standard errors, each 1.253 standard deviations by the root of the runs' number); `None` with fewer
    /// than three runs.
    #[expect(clippy::cast_precision_loss, reason = "a number of runs")]
    pub fn known(&self) -> Option<f64> {
        /// Distance between the quartiles, in standard deviations.
        const QUARTILES: f64 = 1.349;
        let runs = self.runs.len();
        (runs >= 3).then(|| 1.96 * 1.253 * self.spread / QUARTILES / (runs as f64).sqrt())
    }

    /// The value that the part `part` (0 to 1) of the runs does not exceed, between neighbours where it falls between them.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousandths")]
    pub fn at(&self, part: f64) -> f64 {
        let mut sorted = self.runs.clone();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, (part.clamp(0.0, 1.0) * 1000.0).round() as usize, 1000)
    }

    /// Every run and the median multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        let runs = self.runs.iter().map(|run| run * factor).collect();
        Self { median: self.median * factor, spread: self.spread, runs }
    }
}

/// The quantile `part / whole` of sorted values, between neighbours where it falls between them.
fn quantile(sorted: &[f64], part: usize, whole: usize) -> f64 {
    let (last, rest) = (sorted.len() - 1, ((sorted.len() - 1) * part) % whole);
    let low = last * part / whole;
    let high = (low + 1).min(last);
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let weight = rest as f64 / whole as f64;
    sorted[low] + (sorted[high] - sorted[low]) * weight
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_median_is_known_better_with_more_runs() {
        let of = |runs: usize| Sample::new([90.0, 95.0, 100.0, 105.0, 110.0].repeat(runs)).unwrap().known();
        let [few, many] = [of(1), of(16)].map(Option::unwrap);
        assert!((0.07..0.1).contains(&few) && (3.9..4.1).contains(&(few / many)), "{few} {many}");
        assert_eq!(sample(&[1.0, 2.0]).unwrap().known(), None);
    }

    fn sample(runs: &[f64]) -> Option<Sample> {
        Sample::new(runs.to_vec())
    }

    #[test]
    fn sample_medians_and_quartiles() {
        let odd = sample(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((odd.median, odd.spread), (3.0, 2.0 / 3.0));
        assert_eq!(sample(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(sample(&[7.0]).unwrap().spread, 0.0);
        assert_eq!(sample(&[]), None);
        assert_eq!(sample(&[f64::NAN]), None);
        let parts = sample(&[4.0, 0.0, 8.0]).unwrap();
        assert_eq!([0.0, 0.25, 0.5, 1.0].map(|part| parts.at(part)), [0.0, 2.0, 4.0, 8.0]);
    }

    #[test]
    fn sample_whose_median_is_not_that_of_its_runs_is_refused() {
        let read = |text: &str| serde_json::from_str::<Sample>(text).map_err(|error| error.to_string());
        assert_eq!(read(r#"{"median":2.0,"spread":0.0,"runs":[2.0]}"#).unwrap().runs, [2.0]);
        assert!(read(r#"{"median":3.0,"spread":0.0,"runs":[2.0]}"#).unwrap_err().contains("median"));
        assert!(read(r#"{"median":2.0,"spread":-0.5,"runs":[2.0]}"#).unwrap_err().contains("spread"));
        assert!(read(r#"{"median":2.0,"spread":0.0,"runs":[]}"#).unwrap_err().contains("no runs"));
        assert!(read(r#"{"median":2.0,"spread":0.0,"runs":[2.0],"mean":2.0}"#).is_err());
    }
}
