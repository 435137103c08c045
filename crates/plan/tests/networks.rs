//! Many hosts at once: loads against the simulator, lost cables, the document.

use crosslane_pcie::NANOSECOND;
use crosslane_plan::{Figure, Forwarding, Plan, Quantity, Settings, plan};

fn settings(topology: &str, hosts: u16, cable: &str) -> Settings {
    Settings {
        hosts,
        topology: topology.parse().unwrap(),
        cable: cable.parse().unwrap(),
        forwarding: Forwarding::default(),
        streams: 1,
        lost: Vec::new(),
    }
}

fn simulated(settings: &Settings) -> Plan {
    plan(settings, Some(1), &mut |_, _| {}).unwrap()
}

fn of(plan: &Plan, quantity: Quantity) -> f64 {
    let figure = plan.whole.figures.iter().find(|figure| figure.quantity == quantity).unwrap();
    figure.formula
}

/// Percent by which the simulator may differ. Streams, cables and times: 1. Of an exchange that a cable limits: 2, for its beginning and its end,
/// when not all of it is under way. Of one that a pump limits: 8, and 15 of less than six hosts, since how often a pump finds the wire
/// taken, and for how long, depends on how few flows happen to alternate; the formula takes half a piece.
fn tolerance(figure: &Figure, hosts: u16) -> f64 {
    let is_exchange =
        matches!(figure.quantity, Quantity::AllToAllHost | Quantity::AllToAll | Quantity::Halves);
    match (is_exchange, figure.limited_by.starts_with("forwarding")) {
        (true, true) if hosts < 6 => 15.0,
        (true, true) => 8.0,
        (true, false) => 2.0,
        (false, _) => 1.0,
    }
}

#[test]
fn plan_figures_are_within_their_tolerance_of_the_simulator() {
    let slow = Forwarding { rate: 2e9, latency: 1000 * NANOSECOND, ..Forwarding::default() };
    for (topology, hosts, cable, forwarding) in [
        ("pair", 2, "gen4 x8, mps 256, fibre 10 m", Forwarding::default()),
        ("pair", 2, "gen3 x8, dma 1M", Forwarding::default()),
        ("ring", 3, "gen3 x4", Forwarding::default()),
        ("ring", 12, "gen4 x8, mps 256, fibre 10 m", Forwarding::default()),
        ("ring", 12, "gen4 x8, mps 256, fibre 10 m", slow),
        ("ring", 9, "gen5 x16, mps 512, dma", Forwarding::default()),
        ("chain", 6, "gen3 x8", Forwarding::default()),
        ("chain", 4, "gen1 x1, errors 1e-9", Forwarding::default()),
        ("torus", 16, "gen4 x4", Forwarding::default()),
        ("torus-3x5", 15, "gen4 x8, dma", Forwarding::default()),
        ("mesh", 6, "gen3 x2", Forwarding::default()),
    ] {
        let plan = simulated(&Settings { forwarding, ..settings(topology, hosts, cable) });
        assert!(plan.whole.figures.len() >= 12, "{topology} {hosts}: {:?}", plan.whole.figures);
        for part in [&plan.whole, &plan.after_loss] {
            for figure in &part.figures {
                // Nothing lies between halves that are parted.
                let Some(difference) = figure.difference_percent else {
                    assert!(figure.formula == 0.0, "{figure:?}");
                    continue;
                };
                let most = tolerance(figure, hosts);
                assert!(
                    difference.abs() < most,
                    "{topology} {hosts}, {cable}: {difference:.2} % of {most}, {figure:?}"
                );
            }
        }
    }
}

#[test]
fn plan_ring_that_loses_a_cable_is_a_chain() {
    let ring = simulated(&settings("ring", 8, "gen4 x8"));
    let chain = simulated(&settings("chain", 8, "gen4 x8"));
    assert_eq!((ring.after_loss.cables, ring.after_loss.farthest, ring.after_loss.parted_pairs), (7, 7, 0));
    for quantity in [Quantity::AllToAll, Quantity::Bisection, Quantity::LineWorst, Quantity::PageMean] {
        let left = ring.after_loss.figures.iter().find(|figure| figure.quantity == quantity).unwrap();
        let theirs = of(&chain, quantity);
        // The path to a host half way round was one of two; in a chain there is one.
        assert!((left.formula / theirs - 1.0).abs() < 1e-9, "{quantity:?}: {} and {theirs}", left.formula);
    }
    assert!(of(&ring, Quantity::Bisection) > 1.9 * of(&chain, Quantity::Bisection));
}

#[test]
fn plan_of_a_parted_network_is_of_the_pairs_that_are_left() {
    let plan = simulated(&settings("chain", 4, "gen3 x4"));
    assert_eq!((plan.lost_cables.clone(), plan.after_loss.parted_pairs), (vec!["h2-h3".to_owned()], 8));
    assert!(plan.notes.iter().any(|note| note.contains("8 ordered pairs")), "{:?}", plan.notes);
    let pair = simulated(&settings("pair", 2, "gen3 x4"));
    assert!(pair.after_loss.figures.is_empty() && pair.after_loss.parted_pairs == 2);
}

#[test]
fn plan_same_seed_gives_the_same_document() {
    let settings = settings("torus", 12, "gen4 x8, errors 1e-8, dma");
    let text = |seed| serde_json::to_string(&plan(&settings, Some(seed), &mut |_, _| {}).unwrap()).unwrap();
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8), "another seed has other bit errors, and another order of messages");
}

#[test]
fn plan_of_hundreds_of_hosts_is_simulated() {
    let plan = simulated(&settings("torus-16x16", 256, "gen4 x8, fibre 10 m"));
    assert!(plan.whole.figures.iter().all(|figure| figure.simulated.is_some()));
    assert!(plan.notes.iter().any(|note| note.contains("254")), "{:?}", plan.notes);
}
