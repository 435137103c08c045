//! `compare` against what is known: seeded draws of one distribution, and of two that differ by 3 %.

use crosslane_results::compare::{Comparison, Settings, Verdict};
use crosslane_results::figure::Figure;
use crosslane_results::report::Report;
use crosslane_results::sample::Sample;
use crosslane_results::unit::Unit;
use fastrand::Rng;

/// Comparisons of each kind. Of so many, a kind that errs 5 times in 100 errs more than 6 times in 100 in one series of 50.
const DRAWS: u32 = 2000;
const DOCUMENT: &str = include_str!("../../../docs/results.md");
/// Quartiles of the normal distribution lie this many deviations apart.
const QUARTILES: f64 = 1.349;

/// How the runs of a metric scatter.
#[derive(Clone, Copy, Debug)]
enum Scatter {
    /// Log-normal, with quartiles this part of the median apart.
    LogNormal(f64),
    /// The same, and each twentieth run is up to three times as large: the machine did something else.
    Outliers(f64),
    /// Cauchy's: no mean, no deviation.
    Cauchy(f64),
    /// Two states of the machine, a tenth apart, that take turns by chance.
    TwoStates(f64),
}

fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

fn run(scatter: Scatter, random: &mut Rng) -> f64 {
    match scatter {
        Scatter::LogNormal(spread) => (normal(random) * spread / QUARTILES).exp(),
        Scatter::Outliers(spread) => {
            let far = if random.f64() < 0.05 { 1.0 + 2.0 * random.f64() } else { 1.0 };
            far * (normal(random) * spread / QUARTILES).exp()
        }
        Scatter::Cauchy(spread) => {
            (spread / 2.0 * (std::f64::consts::PI * (random.f64() - 0.5)).tan()).clamp(-9.0, 9.0).exp()
        }
        Scatter::TwoStates(spread) => {
            let state = if random.bool() { 1.1 } else { 1.0 };
            state * (normal(random) * spread / QUARTILES).exp()
        }
    }
}

/// A result of `metrics` metrics of `runs` runs; the first one is `factor` times larger.
fn result(
    template: &Report,
    scatter: Scatter,
    [metrics, runs]: [usize; 2],
    factor: f64,
    random: &mut Rng,
) -> Report {
    let figure = |metric: usize| {
        let factor = if metric == 0 { factor } else { 1.0 };
        let runs = (0..runs).map(|_| 250.0 * factor * run(scatter, random)).collect();
        Figure::new("drawn", format!("{metric}"), Unit::MegabytesPerSecond, Sample::new(runs))
    };
    let mut report = template.clone();
    report.figures = (0..metrics).map(figure).collect();
    report
}

/// What is said of two results, in many draws.
fn draws(scatter: Scatter, size: [usize; 2], factor: f64, seed: u64) -> Vec<Comparison> {
    some_draws(DRAWS, scatter, size, factor, seed)
}

fn some_draws(count: u32, scatter: Scatter, size: [usize; 2], factor: f64, seed: u64) -> Vec<Comparison> {
    let (template, mut random) = (Report::new("drawn").ended(), Rng::with_seed(seed));
    let one = |_| {
        let [a, b] = [1.0, factor].map(|factor| result(&template, scatter, size, factor, &mut random));
        Comparison::new(&a, &b, Settings::default())
    };
    (0..count).map(one).collect()
}

/// Of 100 comparisons, those for which `holds`.
fn percent(comparisons: &[Comparison], holds: impl Fn(&Comparison) -> bool) -> f64 {
    let count = u32::try_from(comparisons.iter().filter(|one| holds(one)).count()).unwrap();
    100.0 * f64::from(count) / comparisons.len() as f64
}

fn finds_any(comparison: &Comparison) -> bool {
    comparison.count(Verdict::Better) + comparison.count(Verdict::Worse) > 0
}

#[test]
fn compare_finds_nothing_between_two_of_one_distribution() {
    let one = [[1, 3], [1, 5], [1, 15], [1, 21]];
    let few =
        [Scatter::LogNormal(0.01), Scatter::Cauchy(0.02), Scatter::TwoStates(0.01)].map(|it| (it, &one[..]));
    let all = [&one[..], &[[20, 5], [20, 15]]].concat();
    let many = [Scatter::LogNormal(0.03), Scatter::Outliers(0.02)].map(|it| (it, &all[..]));
    let kinds = few.into_iter().chain(many).flat_map(|(it, sizes)| sizes.iter().map(move |size| (it, *size)));
    for (seed, (scatter, size)) in (1..).zip(kinds) {
        let alarms = percent(&draws(scatter, size, 1.0, seed), finds_any);
        println!("{scatter:?}, {} metrics of {} runs: {alarms:.1} of 100 alarms", size[0], size[1]);
        assert!(alarms <= 6.0, "{scatter:?} {size:?}: {alarms}");
    }
}

#[test]
fn compare_says_no_difference_where_the_runs_are_enough() {
    for (spread, size) in [(0.01, [1, 3]), (0.03, [1, 3]), (0.03, [1, 5]), (0.03, [1, 15]), (0.03, [1, 21])] {
        let comparisons = draws(Scatter::LogNormal(spread), size, 1.0, 77);
        let said = percent(&comparisons, |one| one.metrics[0].says.starts_with("no difference ("));
        println!("spread {spread}, {} runs: {said:.1} of 100", size[1]);
        assert!(said >= 94.0, "{spread} {size:?}: {said}");
    }
}

/// How often a metric that is 3 % faster is found to be faster.
fn found(count: u32, spread: f64, size: [usize; 2]) -> f64 {
    percent(&some_draws(count, Scatter::LogNormal(spread), size, 1.03, 99), |one| {
        one.metrics[0].verdict == Verdict::Better
    })
}

#[test]
fn compare_finds_three_percent_by_spread_and_runs() {
    // What docs/results.md says: the greatest spread at which each number of runs is enough.
    let enough = [
        ([1, 3], 0.008),
        ([1, 5], 0.015),
        ([1, 10], 0.02),
        ([1, 15], 0.03),
        ([1, 21], 0.03),
        ([20, 10], 0.015),
        ([20, 15], 0.02),
    ];
    for (size, spread) in enough {
        let rate = found(DRAWS, spread, size);
        println!("{} metrics of {} runs, spread {spread}: {rate:.1} of 100", size[0], size[1]);
        assert!(rate >= 90.0, "{size:?} {spread}: {rate}");
    }
}

#[test]
fn compare_difference_beside_outliers_is_found_by_ranks() {
    let comparisons = draws(Scatter::Outliers(0.02), [1, 21], 1.03, 5);
    let rate = percent(&comparisons, |one| one.metrics[0].verdict == Verdict::Better);
    assert!(rate >= 90.0, "{rate}");
}

#[test]
fn compare_interval_holds_the_true_difference() {
    for (scatter, runs) in
        [(Scatter::LogNormal(0.03), 5), (Scatter::LogNormal(0.03), 15), (Scatter::Outliers(0.02), 15)]
    {
        let holds = |one: &Comparison| {
            let change = one.metrics[0].change.unwrap();
            change.low <= 3.0 && change.high.is_none_or(|high| high >= 3.0)
        };
        let rate = percent(&draws(scatter, [1, runs], 1.03, 11), holds);
        assert!(rate >= 94.0, "{scatter:?} {runs}: {rate}");
    }
}

/// The table in docs/results.md, spreads down, runs across, which is of 2000 draws (`CROSSLANE_DRAWS=2000` takes two minutes): three deviations
/// of what fewer draws give at most.
#[test]
fn compare_finds_as_much_as_the_document_says() {
    const RUNS: [usize; 7] = [3, 5, 10, 15, 21, 30, 40];
    let asked = std::env::var("CROSSLANE_DRAWS").ok().map(|count| count.parse().unwrap());
    let mut metrics = 0;
    let rows = DOCUMENT.lines().filter_map(|line| {
        let cells: Vec<&str> =
            line.strip_prefix("| ")?.trim_end_matches([' ', '|']).split('|').map(str::trim).collect();
        let (numbers, words) =
            cells.get(1)?.split_once(' ').map(|(spread, _)| spread.parse::<f64>()).zip(cells.first())?;
        Some((numbers.ok()?, words.split(' ').next()?.parse::<usize>().ok(), cells[2..].to_vec()))
    });
    let mut count = 0;
    for (spread, said, cells) in rows {
        metrics = said.unwrap_or(metrics);
        for (runs, cell) in RUNS.into_iter().zip(&cells) {
            let draws = asked.unwrap_or(if metrics == 1 { 400 } else { 100 });
            let (rate, documented) =
                (found(draws, spread / 100.0, [metrics, runs]), cell.parse::<f64>().unwrap());
            println!(
                "{metrics} metrics of {runs} runs, spread {spread} %: {rate:.0}, documented {documented}"
            );
            assert!(
                (rate - documented).abs() <= 1.0 + 150.0 / f64::from(draws).sqrt(),
                "{metrics} {runs} {spread}: {rate}, not {documented}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 2 * 6 * RUNS.len(), "cells of the table");
}

fn single(unit: Unit, a: &[f64], b: &[f64]) -> Comparison {
    let result = |runs: &[f64]| {
        let mut report = Report::new("one").ended();
        report.figures = vec![Figure::new("g", "c", unit, Sample::new(runs.to_vec()))];
        report
    };
    Comparison::new(&result(a), &result(b), Settings::default())
}

fn says(unit: Unit, a: &[f64], b: &[f64]) -> String {
    single(unit, a, b).metrics[0].says.clone()
}

#[test]
fn compare_words_follow_the_unit() {
    let (low, high) = ([100.0, 101.0, 99.0, 100.0, 100.0], [110.0, 111.0, 109.0, 110.0, 110.0]);
    assert!(
        says(Unit::GigabitsPerSecond, &low, &high).starts_with("faster by 10.0 % ("),
        "{}",
        says(Unit::GigabitsPerSecond, &low, &high)
    );
    assert!(says(Unit::Nanoseconds, &low, &high).starts_with("slower by 10.0 % ("));
    assert!(says(Unit::Nanoseconds, &high, &low).starts_with("faster by 9.1 % ("));
    assert!(says(Unit::Cycles, &low, &high).starts_with("worse by 10.0 % ("));
    assert!(says(Unit::MegabytesPerProcessorSecond, &low, &high).starts_with("better by"));
}

#[test]
fn compare_interval_stands_around_the_difference_in_words() {
    // Welch by hand: logarithms differ by ln 2 with standard error 0.00816, 4 degrees of freedom, t 2.776.
    let (a, b) = ([0.99_f64, 1.0, 1.01].map(f64::ln), 2.0_f64.ln());
    let a = a.map(f64::exp);
    let twice = a.map(|run| run * b.exp());
    let change = single(Unit::PerSecond, &a, &twice).metrics[0].change.unwrap();
    assert!((change.percent - 100.0).abs() < 1e-9, "{change:?}");
    assert!((change.low - 95.5).abs() < 0.1 && (change.high.unwrap() - 104.6).abs() < 0.1, "{change:?}");
}

#[test]
fn compare_too_few_runs_are_never_no_difference() {
    assert_eq!(says(Unit::PerSecond, &[1.0], &[1.0]), "too few runs to tell (1 and 1)");
    assert!(says(Unit::PerSecond, &[1.0, 1.1], &[1.0, 1.1]).starts_with("too few runs to tell (2 and 2)"));
    assert!(says(Unit::PerSecond, &[1.0; 3], &[2.0; 3]).starts_with("too few runs to tell (3 and 3)"));
    let noisy = says(Unit::PerSecond, &[1.0, 1.4, 0.8], &[1.0, 1.3, 0.7]);
    assert!(noisy.starts_with("too few runs to tell (3 and 3): less than"), "{noisy}");
    assert!(!single(Unit::PerSecond, &[1.0], &[1.0]).tells());
}

#[test]
fn compare_counts_that_never_vary_differ_or_not() {
    assert_eq!(says(Unit::Copies, &[2.0; 5], &[2.0; 5]), "no difference (0.00 % would have been seen)");
    assert!(says(Unit::Copies, &[2.0; 5], &[1.0; 5]).starts_with("better by 50.0 %"));
    assert!(says(Unit::Percent, &[0.0; 5], &[1.0; 5]).contains("not above 0"));
}

#[test]
fn compare_small_differences_do_not_count_if_so_asked() {
    let mut result = [100.0, 102.0].map(|median| {
        let mut report = Report::new("one").ended();
        let runs = [0.999, 1.0, 1.001, 1.0, 1.0].map(|part| median * part).to_vec();
        report.figures = vec![Figure::new("g", "c", Unit::PerSecond, Sample::new(runs))];
        report
    });
    let [a, b] = &mut result;
    let compare = |least| Comparison::new(a, b, Settings { least, ..Settings::default() }).metrics.remove(0);
    assert_eq!(compare(0.0).verdict, Verdict::Better);
    let small = compare(5.0);
    assert_eq!(small.verdict, Verdict::Same);
    assert!(small.says.starts_with("no difference that counts (faster by 2.0 %"), "{}", small.says);
}
