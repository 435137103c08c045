//! One network with all that is computed of it: paths, halves, loads, figures by formulas.

use crate::bisection::Bisection;
use crate::figure::{Figure, Quantity};
use crate::formulas::Formulas;
use crate::load::{Load, Pattern};
use crate::memory::Memory;
use crate::network::Network;
use crate::routes::Routes;
use crosslane_pcie::{Limits, NANOSECOND, Writer};

/// Bytes of a short message, and of a long one.
pub(crate) const LINE: u64 = 64;
pub(crate) const PAGE: u64 = 4096;

/// A network with its paths.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) routes: Routes<'a>,
    pub(crate) bisection: Bisection,
    pub(crate) formulas: Formulas,
    /// Ordered pairs of hosts by the number of cables between them.
    pub(crate) distances: Vec<u64>,
}

impl<'a> View<'a> {
    pub(crate) fn new(network: &'a Network, sides: (u16, u16), formulas: Formulas) -> Self {
        let routes = Routes::new(network);
        let distances = routes.distances();
        Self { routes, bisection: Bisection::new(network, sides), formulas, distances }
    }

    fn network(&self) -> &'a Network {
        self.routes.network()
    }

    /// Cables between the hosts that are farthest from one another; 0 if no host reaches another.
    pub(crate) fn farthest(&self) -> u8 {
        u8::try_from(self.distances.len() - 1).unwrap_or(u8::MAX)
    }

    /// Ordered pairs of hosts that have a path.
    pub(crate) fn pairs(&self) -> u64 {
        self.distances.iter().sum()
    }

    /// Cables between two hosts on average.
    pub(crate) fn mean_distance(&self) -> f64 {
        let cables: u64 = (0..).zip(&self.distances).map(|(cables, count): (u64, _)| cables * count).sum();
        cables as f64 / self.pairs().max(1) as f64
    }

    /// Ordered pairs of hosts that have none.
    pub(crate) fn parted(&self) -> u64 {
        let hosts = u64::from(self.network().hosts());
        hosts * (hosts - 1) - self.pairs()
    }

    pub(crate) fn memory(&self, streams: u64) -> Memory {
        Memory::new(&self.routes, streams)
    }

    /// All figures by formulas; none if no host reaches another.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        if self.pairs() == 0 {
            return Vec::new();
        }
        let mut figures = self.streams();
        figures.extend(self.together());
        figures.extend(
            self.latencies(LINE, [Quantity::LineNeighbours, Quantity::LineMean, Quantity::LineWorst]),
        );
        figures.extend(
            self.latencies(PAGE, [Quantity::PageNeighbours, Quantity::PageMean, Quantity::PageWorst]),
        );
        figures
    }

    fn figure(&self, quantity: Quantity, formula: f64, limited_by: String) -> Figure {
        Figure::new(quantity, self.farthest(), formula, limited_by)
    }

    /// One writer, or two.
    fn streams(&self) -> Vec<Figure> {
        let (formulas, farthest) = (&self.formulas, self.farthest());
        let neighbours = |quantity, both| {
            self.figure(quantity, formulas.neighbours(both), formulas.limited_by(both).to_owned())
        };
        let stream = |quantity, cables| {
            let rate = formulas.stream(cables);
            let limit = if rate < 0.999 * formulas.pump() {
                "rings of the hosts between"
            } else if formulas.forwarding.rate <= formulas.neighbours(false) {
                "forwarding by one pump"
            } else {
                formulas.limited_by(false)
            };
            self.figure(quantity, rate, limit.to_owned())
        };
        let mut figures = vec![
            neighbours(Quantity::NeighboursOneWay, false),
            neighbours(Quantity::NeighboursBothWays, true),
        ];
        figures.extend(self.orders());
        figures.extend((farthest >= 2).then(|| stream(Quantity::StreamTwoCables, 2)));
        figures.extend((farthest > 2).then(|| stream(Quantity::StreamFarthest, farthest)));
        figures
    }

    /// What is told to an engine with a buffer of its own.
    fn orders(&self) -> Vec<Figure> {
        let Writer::Dma { buffer: Some(buffer) } = self.formulas.cable.writer else { return Vec::new() };
        let rate = |len| Limits(&self.formulas.cable).orders(len);
        let figure = |quantity, len, limit: &str| self.figure(quantity, rate(len), limit.to_owned());
        vec![
            figure(Quantity::OrdersThatFit, buffer, "the way of each order, one after the other"),
            figure(Quantity::OrdersTooLong, 2 * buffer, "the engine reads, then sends"),
        ]
    }

    /// Many hosts at once.
    fn together(&self) -> Vec<Figure> {
        let hosts = f64::from(self.network().hosts());
        let mut figures = Vec::new();
        if let Some((all, limit)) = self.pattern(Pattern::AllToAll) {
            figures.push(self.figure(Quantity::AllToAllHost, all / hosts, limit.clone()));
            figures.push(self.figure(Quantity::AllToAll, all, limit));
        }
        let cut = self.bisection.cables.len();
        let cables = format!("{cut} cable{}", if cut == 1 { "" } else { "s" });
        figures.push(self.figure(Quantity::Bisection, cut as f64 * self.formulas.neighbours(true), cables));
        if let Some((both, limit)) = self.pattern(Pattern::Halves) {
            figures.push(self.figure(Quantity::Halves, both / 2.0, limit));
        }
        figures
    }

    /// Bytes a second of all hosts together, and what is full first.
    fn pattern(&self, pattern: Pattern) -> Option<(f64, String)> {
        let load = Load::new(&self.routes, pattern, &self.bisection.half);
        let (each, bottleneck) = load.each(self.network(), &self.formulas)?;
        Some((each * load.pairs as f64, bottleneck.name(self.network())))
    }

    fn latencies(&self, len: u64, [nearest, mean, worst]: [Quantity; 3]) -> Vec<Figure> {
        let time = |cables: u8| self.formulas.latency(len, cables) as f64 / NANOSECOND as f64;
        let cables = |count: f64| {
            let text = if count.fract() == 0.0 { format!("{count}") } else { format!("{count:.2}") };
            format!("{text} cable{}", if count == 1.0 { "" } else { "s" })
        };
        let average = self.mean(time);
        vec![
            self.figure(nearest, time(1), cables(1.0)),
            self.figure(mean, average, cables(self.mean_distance())),
            self.figure(worst, time(self.farthest()), cables(self.farthest().into())),
        ]
    }

    /// Mean over all pairs of hosts of what depends on the cables between them.
    pub(crate) fn mean(&self, mut of: impl FnMut(u8) -> f64) -> f64 {
        let counted = (0..=u8::MAX).zip(&self.distances).filter(|(_, count)| **count > 0);
        let sum: f64 = counted.map(|(cables, count)| of(cables) * *count as f64).sum();
        sum / self.pairs().max(1) as f64
    }
}
