//! What the cases of figures say about a plot's horizontal axis.

/// A place on an axis, with what else the case says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// Which axis.
    pub(crate) axis: Axis,
    /// Where.
    pub(crate) at: f64,
    /// The rest of the case, which names a series; mostly empty.
    pub(crate) rest: String,
}

/// What a horizontal axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Axis {
    /// Sizes, bytes; logarithmic.
    Size,
    /// Cables between two hosts.
    Cables,
    /// Lanes of a cable.
    Lanes,
}

impl Axis {
    /// As it is written below the axis.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Cables => "cables on the way",
            Self::Lanes => "lanes",
        }
    }

    /// The name of a place.
    pub(crate) fn name(self, at: f64) -> String {
        match self {
            Self::Size => size(at),
            Self::Cables | Self::Lanes => format!("{at:.0}"),
        }
    }
}

/// A size in bytes as a short text.
fn size(bytes: f64) -> String {
    let scaled = |unit: f64, name: &str| {
        let value = bytes / unit;
        if (value - value.round()).abs() < 0.05 {
            format!("{value:.0} {name}")
        } else {
            format!("{value:.1} {name}")
        }
    };
    match bytes {
        _ if bytes >= 1_048_576.0 => scaled(1_048_576.0, "MB"),
        _ if bytes >= 1024.0 => scaled(1024.0, "KB"),
        _ => format!("{bytes:.0} B"),
    }
}

/// The place that `case` names, if it is one of an axis: `64 KB`, `64 KB, memcpy`, `2 cables`, `cable 2`, `4 lanes`, `x4`.
pub(crate) fn place(case: &str) -> Option<Place> {
    let (head, rest) = case.split_once(", ").unwrap_or((case, ""));
    let found = |axis, at| Some(Place { axis, at, rest: rest.to_owned() });
    let mut words = head.split(' ');
    match (words.next()?, words.next(), words.next()) {
        (number, Some("B"), None) => found(Axis::Size, positive(number)?),
        (number, Some("KB"), None) => found(Axis::Size, positive(number)? * 1024.0),
        (number, Some("MB"), None) => found(Axis::Size, positive(number)? * 1_048_576.0),
        (number, Some("cable" | "cables"), None) => found(Axis::Cables, positive(number)?),
        ("cable", Some(number), None) => found(Axis::Cables, positive(number)?),
        (number, Some("lane" | "lanes"), None) => found(Axis::Lanes, positive(number)?),
        (lanes, None, None) => found(Axis::Lanes, positive(lanes.strip_prefix('x')?)?),
        _ => None,
    }
}

fn positive(number: &str) -> Option<f64> {
    number.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0 && *number < 1e12)
}

/// Percentiles as cases name them: `p50`, `p99.9`, `longest`. The rank is where it stands on an axis of equal steps.
pub(crate) fn is_percentile(rest: &str) -> bool {
    rest == "longest" || rest.strip_prefix('p').and_then(positive).is_some_and(|at| at < 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_names_a_place_on_an_axis() {
        let of = |case| place(case).map(|place| (place.axis, place.at, place.rest));
        assert_eq!(of("64 B"), Some((Axis::Size, 64.0, String::new())));
        assert_eq!(of("8 MB, rep movs"), Some((Axis::Size, 8_388_608.0, "rep movs".to_owned())));
        assert_eq!(of("1.4 KB, p99.9").map(|it| it.1.round()), Some(1434.0));
        assert_eq!(of("2 cables"), Some((Axis::Cables, 2.0, String::new())));
        assert_eq!(of("cable 3").map(|it| it.1), Some(3.0));
        assert_eq!(of("x16").map(|it| (it.0, it.1)), Some((Axis::Lanes, 16.0)));
        for case in [
            "",
            "GET, 1 client",
            "-4 KB",
            "nan B",
            "0 B",
            "1e300 MB",
            "x",
            "4 KB more",
            "one stream, 128 KB writes",
        ] {
            assert_eq!(of(case), None, "{case}");
        }
    }

    #[test]
    fn case_percentiles_are_known() {
        assert!(["p50", "p99.9", "longest"].into_iter().all(is_percentile));
        assert!(!["memcpy", "p", "p101", "pnan", ""].into_iter().any(is_percentile));
    }

    #[test]
    fn size_names_are_short() {
        let names = [8.0, 1000.0, 1434.0, 65536.0, 1_048_576.0].map(|at| Axis::Size.name(at));
        assert_eq!(names, ["8 B", "1000 B", "1.4 KB", "64 KB", "1 MB"]);
    }
}
