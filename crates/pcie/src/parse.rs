//! The text of a cable: `gen4 x8, mps 256, fibre 10 m, hops 2, errors 1e-12, dma`.

use crate::{Cable, Generation, Medium, Writer};
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// What is wrong with a text that should say what a cable is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{part}`: {why}; a cable is like `gen4 x8, mps 256, fibre 10 m, hops 2, errors 1e-12, dma`")]
pub struct BadCable {
    /// The part that is wrong.
    pub part: String,
    /// What it should be.
    pub why: &'static str,
}

const LANES: [u8; 6] = [1, 2, 4, 8, 12, 16];
/// Bytes of an engine's own buffer.
const BUFFER: RangeInclusive<u64> = 4 << 10..=1 << 30;
/// Letters behind a number of bytes, the largest first.
const UNITS: [(char, u64); 3] = [('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

impl FromStr for Cable {
    type Err = BadCable;

    fn from_str(text: &str) -> Result<Self, BadCable> {
        let mut parts = text.split(',').map(str::trim);
        let first = parts.next().unwrap_or_default();
        let mut cable = link(first).map_err(|why| BadCable { part: first.to_owned(), why })?;
        let mut seen = Vec::new();
        for part in parts {
            let bad = |why| BadCable { part: part.to_owned(), why };
            let kind = apply(&mut cable, part).map_err(bad)?;
            if seen.contains(&kind) {
                return Err(bad("this is said twice"));
            }
            seen.push(kind);
        }
        Ok(cable)
    }
}

fn link(text: &str) -> Result<Cable, &'static str> {
    let why = "first its generation and lanes: `gen1` to `gen6`, and `x1`, `x2`, `x4`, `x8`, `x12` or `x16`";
    let (generation, lanes) = text.split_once(char::is_whitespace).ok_or(why)?;
    let generation = generation.strip_prefix("gen").and_then(|number| number.parse().ok());
    let lanes = lanes.trim().strip_prefix('x').and_then(|number| number.parse().ok());
    match (generation.and_then(Generation::new), lanes.filter(|lanes| LANES.contains(lanes))) {
        (Some(generation), Some(lanes)) => Ok(Cable::new(generation, lanes)),
        _ => Err(why),
    }
}

/// Changes what a part says; a word that tells parts apart of which there is one.
fn apply(cable: &mut Cable, part: &str) -> Result<&'static str, &'static str> {
    let words: Vec<&str> = part.split_whitespace().collect();
    match *words.as_slice() {
        ["mps", bytes] => {
            let mps =
                bytes.parse().ok().filter(|mps: &u32| mps.is_power_of_two() && (128..=4096).contains(mps));
            cable.mps = mps.ok_or("128 to 4096 bytes, a power of two")?;
            Ok("mps")
        }
        ["copper", length, "m"] => medium(cable, Medium::Copper, length),
        ["fibre", length, "m"] => medium(cable, Medium::Fibre, length),
        ["hops", hops] => {
            cable.hops =
                hops.parse().ok().filter(|hops| *hops <= 16).ok_or("0 to 16 adapters and switches")?;
            Ok("hops")
        }
        ["errors", share] => {
            let share = share.parse().ok().filter(|share| (0.0..=1e-6).contains(share));
            cable.bit_errors = share.ok_or("a bit's probability to be wrong, 0 to 1e-6")?;
            Ok("errors")
        }
        ["stores"] => {
            cable.writer = Writer::Stores;
            Ok("writer")
        }
        ["dma"] => {
            cable.writer = Writer::Dma { buffer: None };
            Ok("writer")
        }
        ["dma", buffer] => {
            let buffer = bytes(buffer).filter(|bytes| BUFFER.contains(bytes));
            cable.writer = Writer::Dma { buffer: Some(buffer.ok_or("an engine's buffer: 4K to 1G")?) };
            Ok("writer")
        }
        _ => Err(
            "this is not known: `mps`, `copper` or `fibre` with a length in `m`, `hops`, `errors`, `stores`, `dma`, `dma 1M`",
        ),
    }
}

fn medium(cable: &mut Cable, medium: Medium, length: &str) -> Result<&'static str, &'static str> {
    let length = millimetres(length).filter(|length| *length > 0 && *length <= medium.reach());
    cable.length = length.ok_or(match medium {
        Medium::Copper => "copper reaches 10 m; at most three decimals",
        Medium::Fibre => "fibre reaches 100 m; at most three decimals",
    })?;
    cable.medium = medium;
    Ok("medium")
}

/// A number of bytes, perhaps of `K`, `M` or `G`.
fn bytes(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(letter, _)| text.ends_with(*letter));
    let (number, unit) = unit.map_or((text, 1), |(letter, unit)| (text.trim_end_matches(*letter), *unit));
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// A number of metres with up to three decimals, in millimetres.
fn millimetres(text: &str) -> Option<u32> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty()
        || part.len() > 3
        || !part.bytes().chain(whole.bytes()).all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1000)?.checked_add(part)
}

impl TryFrom<String> for Cable {
    type Error = BadCable;

    fn try_from(text: String) -> Result<Self, BadCable> {
        text.parse()
    }
}

impl From<Cable> for String {
    fn from(cable: Cable) -> Self {
        cable.to_string()
    }
}

impl Display for Cable {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let medium = match self.medium {
            Medium::Copper => "copper",
            Medium::Fibre => "fibre",
        };
        let (generation, lanes, mps) = (self.generation.number(), self.lanes, self.mps);
        let metres = f64::from(self.length) / 1000.0;
        write!(to, "gen{generation} x{lanes}, mps {mps}, {medium} {metres} m, hops {}", self.hops)?;
        if self.bit_errors > 0.0 {
            write!(to, ", errors {:e}", self.bit_errors)?;
        }
        match self.writer {
            Writer::Stores => write!(to, ", stores"),
            Writer::Dma { buffer: None } => write!(to, ", dma"),
            Writer::Dma { buffer: Some(buffer) } => {
                let unit = UNITS.iter().find(|(_, unit)| buffer.is_multiple_of(*unit));
                let (number, letter) = unit
                    .map_or((buffer, String::new()), |(letter, unit)| (buffer / unit, letter.to_string()));
                write!(to, ", dma {number}{letter}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_cables_are_read_and_written() {
        let cable: Cable = "gen4 x8, mps 256, fibre 10 m".parse().unwrap();
        assert_eq!((cable.generation.number(), cable.lanes, cable.mps), (4, 8, 256));
        assert_eq!((cable.medium, cable.length, cable.hops), (Medium::Fibre, 10_000, 2));
        for text in [
            "gen4 x8, mps 256, fibre 10 m, hops 2, stores",
            "gen1 x1, mps 128, copper 0.5 m, hops 0, errors 1e-12, dma",
            "gen6 x16, mps 4096, copper 10 m, hops 16, dma",
            "gen3 x4, mps 256, copper 1 m, hops 2, dma 1M",
            "gen3 x4, mps 256, copper 1 m, hops 2, dma 1536K",
            "gen3 x4, mps 256, copper 1 m, hops 2, dma 4097",
            "gen3 x4, mps 256, copper 1 m, hops 2, dma 1G",
        ] {
            assert_eq!(text.parse::<Cable>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn mistakes_in_texts_of_cables_are_named() {
        for (text, part) in [
            ("", "``"),
            ("gen7 x8", "`gen7 x8`"),
            ("gen3 x3", "`gen3 x3`"),
            ("gen3", "`gen3`"),
            ("gen3 x4, mps 100", "`mps 100`"),
            ("gen3 x4, mps 8192", "`mps 8192`"),
            ("gen3 x4, copper 11 m", "10 m"),
            ("gen3 x4, fibre -1 m", "100 m"),
            ("gen3 x4, fibre NaN m", "100 m"),
            ("gen3 x4, fibre 1.0001 m", "three decimals"),
            ("gen3 x4, fibre 4294968 m", "100 m"),
            ("gen3 x4, fibre 10", "`fibre 10`"),
            ("gen3 x4, hops 17", "`hops 17`"),
            ("gen3 x4, errors 1", "`errors 1`"),
            ("gen3 x4, dma 1T", "`dma 1T`"),
            ("gen3 x4, dma 3K", "4K to 1G"),
            ("gen3 x4, dma 2G", "4K to 1G"),
            ("gen3 x4, dma -1M", "4K to 1G"),
            ("gen3 x4, dma MM", "4K to 1G"),
            ("gen3 x4, dma 99999999999999999999G", "4K to 1G"),
            ("gen3 x4, dma 1M, stores", "twice"),
            ("gen3 x4, hops 1, hops 2", "twice"),
            ("gen3 x4, stores, dma", "twice"),
            ("gen3 x4, colour red", "`colour red`"),
        ] {
            let error = text.parse::<Cable>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
