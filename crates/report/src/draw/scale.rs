//! Where marks of an axis stand.

use crosslane_results::export::number;

/// An axis of values: where a value stands, and its marks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    logarithmic: bool,
    /// Both ends, as drawn.
    pub(super) ends: (f64, f64),
    /// Marks: as drawn, with their names.
    pub(super) marks: Vec<(f64, String)>,
}

impl Scale {
    /// For these values.
    pub(super) fn new(values: impl Iterator<Item = f64>, logarithmic: bool) -> Self {
        let values: Vec<f64> =
            values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)).collect();
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        if values.is_empty() {
            return Self { logarithmic: false, ends: (0.0, 1.0), marks: vec![(0.0, "0".to_owned())] };
        }
        if logarithmic { Self::decades(least, most) } else { Self::even(least.min(0.0), most.max(0.0)) }
    }

    /// From 0, or from the least negative value.
    fn even(least: f64, most: f64) -> Self {
        let span = if most > least { most - least } else { 1.0 };
        let step = step(span / 5.0);
        let (first, last) = ((least / step).floor(), (most / step).ceil().max((least / step).floor() + 1.0));
        let marks = steps(first, last).map(|at| (at * step, number_or_zero(at * step))).collect();
        Self { logarithmic: false, ends: (first * step, last * step), marks }
    }

    /// By powers of ten, with 2 and 5 between them where these are few.
    fn decades(least: f64, most: f64) -> Self {
        let (first, last) = (least.log10().floor(), most.log10().ceil());
        let last = if last > first { last } else { first + 1.0 };
        let between: &[f64] = if last - first <= 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((last - first) / 8.0).ceil().max(1.0);
        let powers = steps(first, last).filter(|power| (power - first) % every == 0.0);
        let marks = powers.flat_map(|power| between.iter().map(move |times| times * 10_f64.powf(power)));
        let marks =
            marks.filter(|value| value.log10() <= last + 1e-9).map(|value| (value.log10(), short(value)));
        Self { logarithmic: true, ends: (first, last), marks: marks.collect() }
    }

    /// Whether it is one of logarithms.
    pub(super) fn is_logarithmic(&self) -> bool {
        self.logarithmic
    }

    /// Where `value` is drawn; nothing if it cannot be.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.logarithmic { value.log10() } else { value };
        place.is_finite().then_some(place)
    }
}

/// Whole numbers from `first` to `last`.
fn steps(first: f64, last: f64) -> impl Iterator<Item = f64> {
    (0..1000).map(move |at| first + f64::from(at)).take_while(move |at| *at <= last)
}

/// The next of 1, 2, 5 times a power of ten.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= least);
    times.unwrap_or(10.0) * power
}

fn number_or_zero(value: f64) -> String {
    if value == 0.0 { "0".to_owned() } else { short(value) }
}

/// A number in few letters.
fn short(value: f64) -> String {
    let whole = |value: f64, name: &str| {
        let text = format!("{value:.1}");
        format!("{}{name}", text.strip_suffix(".0").unwrap_or(&text))
    };
    match value.abs() {
        size if size >= 1e9 => whole(value / 1e9, " G"),
        size if size >= 1e6 => whole(value / 1e6, " M"),
        size if size >= 1e4 => whole(value / 1e3, " k"),
        size if size >= 1.0 => whole(value, ""),
        size if size >= 0.01 => number(value),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scale: &Scale) -> Vec<&str> {
        scale.marks.iter().map(|(_, name)| &**name).collect()
    }

    #[test]
    fn scale_begins_at_zero_and_has_round_marks() {
        let scale = Scale::new([3.0, 41.0].into_iter(), false);
        assert_eq!((scale.ends, names(&scale)), ((0.0, 50.0), vec!["0", "10", "20", "30", "40", "50"]));
        assert_eq!(Scale::new([0.0].into_iter(), false).ends, (0.0, 0.2));
        assert_eq!(Scale::new([-3.0, 2.0].into_iter(), false).ends, (-3.0, 2.0));
    }

    #[test]
    fn scale_of_logarithms_has_decades() {
        let scale = Scale::new([90.0, 2100.0].into_iter(), true);
        assert_eq!(scale.ends, (1.0, 4.0));
        assert_eq!(names(&scale)[..4], ["10", "20", "50", "100"]);
        assert_eq!(scale.place(100.0), Some(2.0));
        assert_eq!(scale.place(0.0), None);
    }

    #[test]
    fn scale_takes_any_value() {
        for values in
            [vec![], vec![f64::NAN], vec![0.0], vec![f64::MAX, 1e-300], vec![f64::INFINITY], vec![-1.0]]
        {
            for logarithmic in [false, true] {
                let scale = Scale::new(values.iter().copied(), logarithmic);
                assert!(scale.ends.0 < scale.ends.1 && scale.marks.len() < 30, "{values:?} {scale:?}");
            }
        }
    }
}
