//! One number of a plan.

use serde::Serialize;

/// What a number is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Bytes a second.
    #[serde(rename = "bytes/s")]
    Rate,
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Time,
}

/// What is looked at. The words are the keys of the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// A writer that never stops, to a neighbour.
    NeighboursOneWay,
    /// Two of them, each way of both.
    NeighboursBothWays,
    /// One order after the other to a neighbour, each as long as the engine's own buffer.
    OrdersThatFit,
    /// The same of twice as many bytes.
    OrdersTooLong,
    /// One stream over two cables.
    StreamTwoCables,
    /// One stream over as many cables as there are between two hosts at most.
    StreamFarthest,
    /// Each host to each other: of one host.
    AllToAllHost,
    /// Each host to each other: of all together.
    AllToAll,
    /// What the cables between the two halves carry, each way.
    Bisection,
    /// Each host to each of the other half: each way.
    Halves,
    /// 64 bytes to a neighbour.
    LineNeighbours,
    /// 64 bytes, mean of all pairs of hosts.
    LineMean,
    /// 64 bytes between the hosts that are farthest from one another.
    LineWorst,
    /// 4096 bytes to a neighbour.
    PageNeighbours,
    /// 4096 bytes, mean of all pairs of hosts.
    PageMean,
    /// 4096 bytes between the hosts that are farthest from one another.
    PageWorst,
}

impl Quantity {
    /// Its name for people; `cables`: between the hosts that are farthest from one another.
    pub fn name(self, cables: u8) -> String {
        match self {
            Self::NeighboursOneWay => "neighbours, one way".to_owned(),
            Self::NeighboursBothWays => "neighbours, each way of both".to_owned(),
            Self::OrdersThatFit => "orders that fill the engine's buffer".to_owned(),
            Self::OrdersTooLong => "orders of twice the buffer".to_owned(),
            Self::StreamTwoCables => "a stream over 2 cables".to_owned(),
            Self::StreamFarthest => format!("a stream over {cables} cables, the most"),
            Self::AllToAllHost => "all to all, each host".to_owned(),
            Self::AllToAll => "all to all, together".to_owned(),
            Self::Bisection => "bisection: its cables, each way".to_owned(),
            Self::Halves => "half to half, each way".to_owned(),
            Self::LineNeighbours => "64 bytes, neighbours".to_owned(),
            Self::LineMean => "64 bytes, mean".to_owned(),
            Self::LineWorst => "64 bytes, worst".to_owned(),
            Self::PageNeighbours => "4 KB, neighbours".to_owned(),
            Self::PageMean => "4 KB, mean".to_owned(),
            Self::PageWorst => "4 KB, worst".to_owned(),
        }
    }

    /// Its unit.
    pub fn unit(self) -> Unit {
        match self {
            Self::LineNeighbours
            | Self::LineMean
            | Self::LineWorst
            | Self::PageNeighbours
            | Self::PageMean
            | Self::PageWorst => Unit::Time,
            _ => Unit::Rate,
        }
    }
}

/// A number of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Of what.
    pub quantity: Quantity,
    /// Its name for people.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// By the formula.
    pub formula: f64,
    /// What it is limited by, or what it is the sum of.
    pub limited_by: String,
    /// What the simulator gave, if it was asked.
    pub simulated: Option<f64>,
    /// By how many percent the simulator is above the formula.
    pub difference_percent: Option<f64>,
}

impl Figure {
    /// By the formula alone.
    pub(crate) fn new(quantity: Quantity, cables: u8, formula: f64, limited_by: String) -> Self {
        let (name, unit) = (quantity.name(cables), quantity.unit());
        Self { quantity, name, unit, formula, limited_by, simulated: None, difference_percent: None }
    }

    /// Enters what the simulator gave.
    pub(crate) fn simulate(&mut self, value: f64) {
        self.simulated = Some(value);
        self.difference_percent = (self.formula > 0.0).then(|| 100.0 * (value / self.formula - 1.0));
    }
}
