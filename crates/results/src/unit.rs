//! Units of figures.

use serde::{Deserialize, Serialize};

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Unit {
    /// Gigabits (10^9) in a second.
    GigabitsPerSecond,
    /// Megabytes (10^6) in a second.
    MegabytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Times in a second.
    PerSecond,
    /// Megabytes (10^6) in a second of processor time, of all who take part.
    MegabytesPerProcessorSecond,
    /// Copies that were made of each byte.
    Copies,
    /// Messages.
    Messages,
    /// Percent.
    Percent,
    /// Percent of one processor.
    PercentOfCore,
    /// Cycles of the processor's constant clock, for each message.
    Cycles,
    /// Thousands of clocks of the stack study's processors (1.8 GHz).
    ThousandClocks,
}

impl Unit {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::GigabitsPerSecond,
        Self::MegabytesPerSecond,
        Self::Nanoseconds,
        Self::Microseconds,
        Self::PerSecond,
        Self::MegabytesPerProcessorSecond,
        Self::Copies,
        Self::Messages,
        Self::Percent,
        Self::PercentOfCore,
        Self::Cycles,
        Self::ThousandClocks,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::GigabitsPerSecond => "Gb/s",
            Self::MegabytesPerSecond => "MB/s",
            Self::Nanoseconds => "ns",
            Self::Microseconds => "us",
            Self::PerSecond => "1/s",
            Self::MegabytesPerProcessorSecond => "MB/CPU s",
            Self::Copies => "copies",
            Self::Messages => "messages",
            Self::Percent => "%",
            Self::PercentOfCore => "% core",
            Self::Cycles => "cycles",
            Self::ThousandClocks => "10^3 clocks",
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::GigabitsPerSecond
                | Self::MegabytesPerSecond
                | Self::MegabytesPerProcessorSecond
                | Self::PerSecond
                | Self::Percent
        )
    }

    /// Whether it is a rate or a time: better is faster then.
    pub fn is_of_speed(self) -> bool {
        matches!(
            self,
            Self::GigabitsPerSecond
                | Self::MegabytesPerSecond
                | Self::PerSecond
                | Self::Nanoseconds
                | Self::Microseconds
        )
    }

    /// How many times better our value is.
    pub(crate) fn ratio(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { ours / theirs } else { theirs / ours }
    }
}

/// As JSON has it: the whole name.
impl From<Unit> for &'static str {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::PercentOfCore => "% of a core",
            Unit::ThousandClocks => "10^3 clocks at 1.8 GHz",
            unit => unit.name(),
        }
    }
}

/// The unit of that whole name.
impl TryFrom<String> for Unit {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|unit| <&str>::from(*unit) == name);
        found.ok_or_else(|| format!("`{}` is no unit that this crosslane knows", name.escape_debug()))
    }
}

/// A size as a short text.
pub fn bytes(size: usize) -> String {
    match size {
        _ if size >= 1 << 20 && size.is_multiple_of(1 << 20) => format!("{} MB", size >> 20),
        _ if size >= 1 << 10 && size.is_multiple_of(1 << 10) => format!("{} KB", size >> 10),
        _ => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_found_by_its_whole_name() {
        for unit in Unit::ALL {
            assert_eq!(Unit::try_from(<&str>::from(unit).to_owned()), Ok(unit));
        }
        assert!(Unit::try_from("furlongs".to_owned()).unwrap_err().contains("`furlongs`"));
    }
}
