//! What the simulator gives for each figure of a plan.

use crate::figure::{Figure, Quantity};
use crate::load::Pattern;
use crate::simulation::{Exchange, Grain, Simulation};
use crate::view::{LINE, PAGE, View};
use crosslane_pcie::{Direction, NANOSECOND, SECOND, Writer};

/// Packets of a saturated cable that are counted, and as many where bits are wrong, of which there must be some.
const PACKETS: u64 = 20_000;
const PACKETS_WITH_ERRORS: u64 = 400_000;
/// Orders to an engine.
const ORDERS: u64 = 100;
/// Pieces of a stream that are counted.
const PIECES: u64 = 500;
/// Pieces that an exchange moves over cables, about: some seconds. And bounds of its rounds.
const MOVES: f64 = 1e6;
const ROUNDS: (f64, f64) = (1.0, 100.0);

/// Runs the simulator for all figures of a network. `progress` hears the name of each, and which share of it is done.
pub(crate) fn check(view: &View<'_>, figures: &mut [Figure], seed: u64, progress: &mut dyn FnMut(&str, f64)) {
    let mut all_to_all = None;
    for figure in figures {
        let name = figure.name.clone();
        let mut progress = |share: f64| progress(&name, share);
        progress(0.0);
        let value = match figure.quantity {
            Quantity::NeighboursOneWay => Some(saturated(view, false, seed)),
            Quantity::NeighboursBothWays => Some(saturated(view, true, seed)),
            Quantity::OrdersThatFit => orders(view, 1, seed),
            Quantity::OrdersTooLong => orders(view, 2, seed),
            Quantity::StreamTwoCables => stream(view, 2, seed),
            Quantity::StreamFarthest => stream(view, view.farthest(), seed),
            Quantity::AllToAllHost => {
                all_to_all = exchange(view, Pattern::AllToAll, seed, &mut progress);
                all_to_all.map(|all| all / f64::from(view.routes.network().hosts()))
            }
            Quantity::AllToAll => all_to_all,
            Quantity::Bisection => bisection(view, seed),
            Quantity::Halves => exchange(view, Pattern::Halves, seed, &mut progress).map(|both| both / 2.0),
            Quantity::LineNeighbours => latency(view, LINE, 1, seed),
            Quantity::LineMean => Some(mean(view, LINE, seed)),
            Quantity::LineWorst => latency(view, LINE, view.farthest(), seed),
            Quantity::PageNeighbours => latency(view, PAGE, 1, seed),
            Quantity::PageMean => Some(mean(view, PAGE, seed)),
            Quantity::PageWorst => latency(view, PAGE, view.farthest(), seed),
        };
        progress(1.0);
        if let Some(value) = value {
            figure.simulate(value);
        }
    }
}

/// Two hosts with so many cables between them.
fn pair(view: &View<'_>, cables: u8) -> Option<(u16, u16)> {
    view.routes.pairs().find(|(from, to)| view.routes.hops(*from, *to) == Some(cables))
}

/// Bytes a second in each direction of a cable whose writers never stop, packet by packet.
fn saturated(view: &View<'_>, both: bool, seed: u64) -> f64 {
    let (network, formulas) = (view.routes.network(), view.formulas);
    let mut simulation = Simulation::new(network, formulas, Grain::Packets, seed);
    let directions = if both { 0..2 } else { 0..1 };
    let count = directions.len() as u64;
    directions.for_each(|direction| {
        simulation.start(vec![direction], u64::MAX, 0);
    });
    let packets = if formulas.cable.bit_errors > 0.0 { PACKETS_WITH_ERRORS } else { PACKETS };
    let payload = formulas.cable.writer.payload(&formulas.cable);
    steady(&mut simulation, count * packets * payload) / count as f64
}

/// Bytes a second of orders of so many buffers of the engine, each given when the one before has landed.
fn orders(view: &View<'_>, buffers: u64, seed: u64) -> Option<f64> {
    let cable = view.formulas.cable;
    let Writer::Dma { buffer: Some(buffer) } = cable.writer else { return None };
    let (mut direction, mut landed) = (Direction::new(cable, seed), 0);
    for _ in 0..ORDERS {
        landed = direction.order(landed, buffers * buffer).landed;
    }
    Some((ORDERS * buffers * buffer) as f64 * SECOND as f64 / landed as f64)
}

/// Bytes a second of flows that never stop, over the last nine tenths of so many bytes.
fn steady(simulation: &mut Simulation<'_>, bytes: u64) -> f64 {
    let mut at = |bytes: u64| {
        simulation.run_until(bytes);
        (simulation.now() as f64 / SECOND as f64, simulation.delivered() as f64)
    };
    let (begin, end) = (at(bytes / 10), at(bytes));
    (end.1 - begin.1) / (end.0 - begin.0)
}

/// Bytes a second of one stream over so many cables.
fn stream(view: &View<'_>, cables: u8, seed: u64) -> Option<f64> {
    let (from, to) = pair(view, cables)?;
    let mut simulation = Simulation::new(view.routes.network(), view.formulas, Grain::Turns, seed);
    simulation.start(view.routes.path(from, to), u64::MAX, 0);
    Some(steady(&mut simulation, PIECES * view.formulas.forwarding.turn))
}

/// Bytes a second each way of all cables between the halves, with writers that never stop at both ends of each.
fn bisection(view: &View<'_>, seed: u64) -> Option<f64> {
    let cables = &view.bisection.cables;
    let mut simulation = Simulation::new(view.routes.network(), view.formulas, Grain::Turns, seed);
    for direction in cables.iter().flat_map(|cable| [2 * cable, 2 * cable + 1]) {
        simulation.start(vec![direction], u64::MAX, 0);
    }
    let flows = 2 * cables.len() as u64;
    (flows > 0).then(|| steady(&mut simulation, flows * PIECES * view.formulas.forwarding.turn) / 2.0)
}

/// Bytes a second of all hosts together.
fn exchange(view: &View<'_>, pattern: Pattern, seed: u64, progress: &mut dyn FnMut(f64)) -> Option<f64> {
    let moves = view.pairs() as f64 * view.mean_distance();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between two small bounds")]
    let rounds = (MOVES / moves).clamp(ROUNDS.0, ROUNDS.1) as u32;
    let half = &view.bisection.half;
    Exchange::new(&view.routes, view.formulas, (pattern, half), rounds, seed).rate(progress)
}

/// Nanoseconds until a message is at the far end of so many cables, when nothing else is under way.
fn latency(view: &View<'_>, len: u64, cables: u8, seed: u64) -> Option<f64> {
    let (from, to) = pair(view, cables)?;
    let mut simulation = Simulation::new(view.routes.network(), view.formulas, Grain::Turns, seed);
    simulation.start(view.routes.path(from, to), len, 0);
    simulation.run_until(len);
    Some(simulation.now() as f64 / NANOSECOND as f64)
}

/// The same, mean of all pairs of hosts: pairs with as many cables between them differ in nothing.
fn mean(view: &View<'_>, len: u64, seed: u64) -> f64 {
    view.mean(|cables| latency(view, len, cables, seed).unwrap_or(0.0))
}
