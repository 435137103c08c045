//! How far the logarithms of two samples lie apart, and how sure that is.

use super::ranks::{Known, Ranks};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use std::rc::Rc;

/// Fewest runs of both samples for the rank test: from here on it can be as sure as is asked for, however many metrics there are.
const RANKED: usize = 10;
/// Most of both samples: all pairs are sorted.
const SORTED: usize = 1000;
/// How often a difference that could have been seen is found.
const POWER: f64 = 0.9;

/// The difference of two samples.
#[derive(Clone, Debug)]
pub(super) enum Contrast {
    /// Of means, by Welch's test: few runs.
    Means {
        /// Difference of the means.
        difference: f64,
        /// Its standard error.
        error: f64,
        /// Degrees of freedom.
        freedom: f64,
    },
    /// By ranks: the median of all pairs' differences (Hodges and Lehmann, 1963). A few runs far off do not move it.
    Pairs {
        /// Differences of all pairs, sorted.
        differences: Vec<f64>,
        /// What these say if the samples are of one distribution.
        ranks: Rc<Ranks>,
    },
    /// No run differs from another one in its sample: two numbers, that differ with this probability by chance.
    Constants {
        /// Their difference.
        difference: f64,
        /// Probability that all values of one sample are above all of the other, if both are of one distribution.
        chance: f64,
    },
}

impl Contrast {
    /// Of logarithms of A and B; `None` if a sample has fewer than two values.
    pub(super) fn new(a: &[f64], b: &[f64], known: &mut Known) -> Option<Self> {
        let (least, most) = (a.len().min(b.len()), a.len().max(b.len()));
        if least < 2 {
            return None;
        }
        let (one, other) = (Moments::of(a), Moments::of(b));
        let difference = other.mean - one.mean;
        let error = (one.part + other.part).sqrt();
        // Rounding of the logarithms is no spread.
        if error <= 1e-12 {
            let difference = if difference.abs() <= 1e-12 { 0.0 } else { difference };
            return Some(Self::Constants { difference, chance: chance(a.len(), b.len()) });
        }
        if least < RANKED || most > SORTED {
            let freedom = error.powi(4) / (one.of_freedom() + other.of_freedom());
            return Some(Self::Means { difference, error, freedom });
        }
        let mut differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        differences.sort_by(f64::total_cmp);
        Some(Self::Pairs { differences, ranks: known.of(a.len(), b.len()) })
    }

    /// The best guess of the difference.
    pub(super) fn difference(&self) -> f64 {
        match self {
            Self::Means { difference, .. } | Self::Constants { difference, .. } => *difference,
            Self::Pairs { differences, .. } => {
                let half = differences.len() / 2;
                if differences.len() % 2 == 1 {
                    differences[half]
                } else {
                    differences[half - 1].midpoint(differences[half])
                }
            }
        }
    }

    /// Probability of a difference at least as large in either direction, if there is none.
    pub(super) fn chance(&self) -> f64 {
        match self {
            Self::Means { difference, error, freedom } => {
                2.0 * student(*freedom).sf((difference / error).abs())
            }
            Self::Constants { difference, chance } => {
                if *difference == 0.0 {
                    1.0
                } else {
                    *chance
                }
            }
            Self::Pairs { differences, ranks } => {
                let below = differences.partition_point(|difference| *difference <= 0.0);
                let above = differences.len() - differences.partition_point(|difference| *difference < 0.0);
                (2.0 * ranks.at_most(below.min(above))).min(1.0)
            }
        }
    }

    /// The interval that holds the true difference but for a probability of `alpha`.
    pub(super) fn interval(&self, alpha: f64) -> (f64, f64) {
        match self {
            Self::Means { difference, error, freedom } => {
                let half = quantile(*freedom, alpha / 2.0) * error;
                (difference - half, difference + half)
            }
            Self::Constants { difference, chance } if *difference == 0.0 || *chance <= alpha => {
                (*difference, *difference)
            }
            Self::Constants { .. } => (f64::NEG_INFINITY, f64::INFINITY),
            Self::Pairs { differences, ranks } => match ranks.outside(alpha / 2.0) {
                0 => (f64::NEG_INFINITY, f64::INFINITY),
                outside => (differences[outside - 1], differences[differences.len() - outside]),
            },
        }
    }

    /// The least difference that would have been found [`POWER`] of the time, about.
    pub(super) fn visible(&self, alpha: f64) -> f64 {
        match self {
            Self::Means { error, freedom, .. } => {
                (quantile(*freedom, alpha / 2.0) + quantile(*freedom, 1.0 - POWER)) * error
            }
            Self::Constants { chance, .. } => {
                if *chance <= alpha {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            Self::Pairs { .. } => {
                let (low, high) = self.interval(alpha);
                (high - low) / 2.0 * (1.0 + upper(1.0 - POWER) / upper(alpha / 2.0))
            }
        }
    }
}

/// Mean of a sample, and what it adds to the square of the standard error.
struct Moments {
    mean: f64,
    part: f64,
    count: f64,
}

impl Moments {
    #[expect(clippy::cast_precision_loss, reason = "a number of runs")]
    fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, part: squares / (count - 1.0) / count, count }
    }

    fn of_freedom(&self) -> f64 {
        self.part.powi(2) / (self.count - 1.0)
    }
}

/// Both orders in which all of one sample are above all of the other, of all orders.
#[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
fn chance(n: usize, m: usize) -> f64 {
    2.0 * (1..=n.min(m)).map(|place| place as f64 / (n.max(m) + place) as f64).product::<f64>()
}

/// Student's distribution. Welch's degrees of freedom are 1 or more.
fn student(freedom: f64) -> StudentsT {
    StudentsT::new(0.0, 1.0, freedom.max(1.0)).expect("a scale of one")
}

/// What Student's distribution exceeds with probability `tail`.
fn quantile(freedom: f64, tail: f64) -> f64 {
    -student(freedom).inverse_cdf(tail)
}

/// What the normal distribution exceeds with probability `tail`.
fn upper(tail: f64) -> f64 {
    -Normal::standard().inverse_cdf(tail)
}
