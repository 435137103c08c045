//! The distribution of the rank sum test's statistic (Mann and Whitney, 1947): of `n` values of one sample and `m` of another, in
//! how many of all pairs the one is larger, if both are of one distribution.

use statrs::distribution::{ContinuousCDF, Normal};
use std::collections::HashMap;
use std::rc::Rc;

/// Most pairs for which the distribution is counted; above that it is near enough to the normal one.
const COUNTED: usize = 1000;

/// Distributions that were counted already, by numbers of values.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<(usize, usize), Rc<Ranks>>);

impl Known {
    /// That of samples of `n` and `m` values.
    pub(super) fn of(&mut self, n: usize, m: usize) -> Rc<Ranks> {
        Rc::clone(self.0.entry((n, m)).or_insert_with(|| Rc::new(Ranks::new(n, m))))
    }
}

/// The distribution, as cumulated probabilities.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    pairs: usize,
    below: Below,
}

#[derive(Clone, Debug)]
enum Below {
    /// For each number of pairs up to all of them.
    Counted(Vec<f64>),
    /// Mean and standard deviation.
    Normal(f64, f64),
}

impl Ranks {
    /// Of samples of `n` and `m` values.
    fn new(n: usize, m: usize) -> Self {
        let pairs = n * m;
        if pairs <= COUNTED {
            return Self { pairs, below: Below::Counted(counted(n, m)) };
        }
        #[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
        let (pairs_f, all) = (pairs as f64, (n + m + 1) as f64);
        Self { pairs, below: Below::Normal(pairs_f / 2.0, (pairs_f * all / 12.0).sqrt()) }
    }

    /// Probability of `count` or fewer.
    pub(super) fn at_most(&self, count: usize) -> f64 {
        match &self.below {
            Below::Counted(below) => below[count.min(self.pairs)],
            #[expect(clippy::cast_precision_loss, reason = "numbers of runs")]
            Below::Normal(mean, deviation) => Normal::standard().cdf((count as f64 + 0.5 - mean) / deviation),
        }
    }

    /// How many of the least differences of pairs lie outside of the interval whose two sides are each missed with probability `tail`
    /// at most: the interval begins with the difference of that number, counted from one. 0 if there is no such interval.
    pub(super) fn outside(&self, tail: f64) -> usize {
        let (mut low, mut high) = (0, self.pairs);
        while low < high {
            let middle = low.midpoint(high);
            if self.at_most(middle) > tail { high = middle } else { low = middle + 1 }
        }
        low
    }
}

/// Counts the orders of `n` and `m` values by number of pairs: `ways[k][u]` has those of `k` values of the one sample among the ranks
/// seen so far.
fn counted(n: usize, m: usize) -> Vec<f64> {
    let (few, many) = (n.min(m), n.max(m));
    let mut ways = vec![vec![0.0_f64; n * m + 1]; few + 1];
    ways[0][0] = 1.0;
    for rank in 0..few + many {
        for taken in (1..=few.min(rank + 1)).rev() {
            // The value has `rank - (taken - 1)` of the other sample below it.
            let above = rank + 1 - taken;
            if above > many {
                continue;
            }
            let (before, after) = ways.split_at_mut(taken);
            for (to, from) in after[0][above..].iter_mut().zip(&before[taken - 1]) {
                *to += from;
            }
        }
    }
    let mut sum = 0.0;
    let cumulated: Vec<f64> = ways[few]
        .iter()
        .map(|ways| {
            sum += ways;
            sum
        })
        .collect();
    cumulated.iter().map(|below| below / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders of two small samples, one by one.
    fn enumerated(n: usize, m: usize) -> Vec<f64> {
        let mut ways = vec![0.0; n * m + 1];
        for mask in 0_u32..1 << (n + m) {
            if mask.count_ones() as usize == n {
                let is = |place: usize| mask >> place & 1 == 1;
                let pairs = (0..n + m).filter(|&at| is(at)).map(|at| (0..at).filter(|&at| !is(at)).count());
                ways[pairs.sum::<usize>()] += 1.0;
            }
        }
        let all: f64 = ways.iter().sum();
        (0..ways.len()).map(|count| ways[..=count].iter().sum::<f64>() / all).collect()
    }

    #[test]
    fn ranks_distribution_is_that_of_all_orders() {
        for (n, m) in [(1, 1), (1, 5), (3, 3), (3, 5), (5, 4), (6, 6)] {
            let ranks = Ranks::new(n, m);
            for (count, expected) in enumerated(n, m).into_iter().enumerate() {
                assert!((ranks.at_most(count) - expected).abs() < 1e-12, "{n} {m} {count}");
            }
        }
    }

    #[test]
    fn ranks_interval_is_that_of_the_published_tables() {
        // Critical values of U for two sides of 0.05: 5 and 5: 2; 10 and 10: 23; 15 and 15: 64; 20 and 20: 127.
        for (n, critical) in [(5, 2), (10, 23), (15, 64), (20, 127)] {
            assert_eq!(Ranks::new(n, n).outside(0.025), critical + 1);
        }
        assert_eq!(Ranks::new(3, 3).outside(0.025), 0, "no order of six is that rare");
    }

    #[test]
    fn ranks_normal_joins_the_counted() {
        let exact = counted(31, 33);
        let normal = Ranks::new(31, 33);
        assert!(matches!(normal.below, Below::Normal(..)));
        for (count, exact) in exact.iter().enumerate().filter(|(_, exact)| (1e-6..0.5).contains(*exact)) {
            let ratio = normal.at_most(count) / exact;
            // Far out it finds less than it could.
            let most = if *exact > 1e-3 { 1.2 } else { 10.0 };
            assert!((0.98..most).contains(&ratio), "{count}: {exact} {ratio}");
        }
    }
}
