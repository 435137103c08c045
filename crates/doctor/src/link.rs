//! The link of a PCI Express port: rate of a lane and number of lanes, now and at most.

use crate::tree::Tree;
use std::fmt;

/// Rate and width of a link. What the machine does not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    /// Transfers a second of a lane, in tenths of 10^9: 80 is 8 GT/s.
    pub(crate) speed: Option<u32>,
    /// Lanes.
    pub(crate) width: Option<u32>,
}

/// A link, now and at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) now: Rate,
    pub(crate) most: Rate,
}

impl Link {
    /// Reads the files of the function in folder `path`.
    pub(crate) fn read(tree: &Tree, path: &str) -> Self {
        let rate = |when: &str| {
            let text = |what: &str| tree.text(&format!("{path}/{when}_link_{what}")).unwrap_or_default();
            Rate { speed: speed(&text("speed")), width: width(&text("width")) }
        };
        Self { now: rate("current"), most: rate("max") }
    }
}

impl Rate {
    /// What both could do.
    pub(crate) fn least(self, other: Self) -> Self {
        let least = |one: Option<u32>, other: Option<u32>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { speed: least(self.speed, other.speed), width: least(self.width, other.width) }
    }

    /// Whether one of the two is known to be below that of `other`.
    pub(crate) fn is_below(self, other: Self) -> bool {
        let below = |one: Option<u32>, other: Option<u32>| matches!((one, other), (Some(one), Some(other)) if one < other);
        below(self.speed, other.speed) || below(self.width, other.width)
    }

    /// Whether anything is known.
    pub(crate) fn is_known(self) -> bool {
        self.speed.is_some() || self.width.is_some()
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.speed {
            Some(speed) => match generation(speed) {
                Some(generation) => write!(f, "gen{generation}")?,
                None => write!(f, "{}.{} GT/s", speed / 10, speed % 10)?,
            },
            None => f.write_str("gen?")?,
        }
        match self.width {
            Some(width) => write!(f, " x{width}"),
            None => f.write_str(" x?"),
        }
    }
}

fn generation(speed: u32) -> Option<u32> {
    [25, 50, 80, 160, 320, 640]
        .iter()
        .position(|known| *known == speed)
        .and_then(|at| u32::try_from(at + 1).ok())
}

/// `8.0 GT/s PCIe` and the like; `Unknown` is none.
fn speed(text: &str) -> Option<u32> {
    let (whole, tenths) =
        text.strip_suffix(" PCIe").unwrap_or(text).strip_suffix(" GT/s")?.split_once('.')?;
    let (whole, tenths) =
        (whole.parse::<u16>().ok()?, tenths.parse::<u8>().ok().filter(|tenths| *tenths < 10)?);
    Some(u32::from(whole) * 10 + u32::from(tenths))
}

/// Lanes; ports without a link say 0 or 255.
fn width(text: &str) -> Option<u32> {
    text.parse().ok().filter(|width| (1..=32).contains(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_rates_are_read_and_shown() {
        let rate = Rate { speed: speed("8.0 GT/s PCIe"), width: width("16") };
        assert_eq!(
            (rate, rate.to_string().as_str()),
            (Rate { speed: Some(80), width: Some(16) }, "gen3 x16")
        );
        assert_eq!(speed("2.5 GT/s"), Some(25));
        for odd in ["Unknown", "", "8 GT/s", "99999999.0 GT/s", "8.99 GT/s", "-1.0 GT/s"] {
            assert_eq!(speed(odd), None, "{odd}");
        }
        assert_eq!([width("0"), width("255"), width("63"), width("x")], [None; 4]);
    }

    #[test]
    fn link_unknown_is_neither_below_nor_above() {
        let (known, unknown) = (Rate { speed: Some(80), width: Some(8) }, Rate::default());
        assert!(!known.is_below(unknown) && !unknown.is_below(known));
        assert!(known.is_below(Rate { width: Some(16), ..known }));
        assert_eq!(known.least(unknown), known);
    }
}
