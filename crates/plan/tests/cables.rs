//! The simulator against the formulas, over one cable and several, one flow or two.

use crosslane_pcie::{Cable, Generation, LINE, NANOSECOND, SECOND, Writer, wire_bytes};
use crosslane_plan::simulation::{Ended, Grain, Simulation};
use crosslane_plan::{Formulas, Forwarding, Network, Routes, Topology};

const LANES: [u8; 6] = [1, 2, 4, 8, 12, 16];
const SIZES: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];

fn near(ours: f64, formula: f64) -> bool {
    (ours / formula - 1.0).abs() < 0.01
}

fn formulas(cable: Cable) -> Formulas {
    Formulas { cable, forwarding: Forwarding::default() }
}

/// Bytes a second of flows without end over these paths of a chain, all together, over the last part of `bytes`.
fn rate(formulas: Formulas, grain: Grain, hosts: u16, paths: &[Vec<usize>], bytes: u64) -> f64 {
    let chain = Network::new(Topology::Chain, hosts).unwrap();
    let mut simulation = Simulation::new(&chain, formulas, grain, 1);
    for path in paths {
        simulation.start(path.clone(), u64::MAX, 0);
    }
    assert_eq!(simulation.run_until(bytes / 5), Ended::Arrived);
    let begin = (simulation.now(), simulation.delivered());
    assert_eq!(simulation.run_until(bytes), Ended::Arrived);
    let time = (simulation.now() - begin.0) as f64 / SECOND as f64;
    (simulation.delivered() - begin.1) as f64 / time
}

fn all_cables(check: impl Fn(Cable)) {
    for generation in Generation::ALL {
        for lanes in LANES {
            for mps in SIZES {
                for writer in [Writer::Stores, Writer::Dma { buffer: None }] {
                    check(Cable { mps, writer, ..Cable::new(generation, lanes) });
                }
            }
        }
    }
}

#[test]
fn plan_saturated_writer_is_within_a_percent_of_the_formula() {
    all_cables(|cable| {
        let bytes = 2500 * cable.writer.payload(&cable);
        let formula = formulas(cable).neighbours(false);
        let ours = rate(formulas(cable), Grain::Packets, 2, &[vec![0]], bytes);
        assert!(near(ours, formula), "{cable}: {ours} bytes/s packet by packet, by the formula {formula}");
        let ours = rate(formulas(cable), Grain::Turns, 2, &[vec![0]], 200 << 16);
        assert!(near(ours, formula), "{cable}: {ours} bytes/s in turns, by the formula {formula}");
    });
}

#[test]
fn plan_both_directions_at_once_are_within_a_percent_of_the_formula() {
    all_cables(|cable| {
        let bytes = 5000 * cable.writer.payload(&cable);
        let formula = 2.0 * formulas(cable).neighbours(true);
        let ours = rate(formulas(cable), Grain::Packets, 2, &[vec![0], vec![1]], bytes);
        assert!(near(ours, formula), "{cable}: {ours} bytes/s packet by packet, by the formula {formula}");
        let ours = rate(formulas(cable), Grain::Turns, 2, &[vec![0], vec![1]], 400 << 16);
        assert!(near(ours, formula), "{cable}: {ours} bytes/s in turns, by the formula {formula}");
    });
}

/// By turns; and packet by packet, of stores: pumps are processors.
#[test]
fn plan_stream_over_several_cables_is_within_a_percent_of_the_formula() {
    for text in
        ["gen1 x1", "gen3 x4", "gen4 x8, fibre 10 m", "gen4 x8, dma", "gen5 x16, mps 512, dma", "gen6 x2"]
    {
        for cables in 2..=4 {
            for pump in [1e9, 10e9, 40e9] {
                let forwarding = Forwarding { rate: pump, ..Forwarding::default() };
                let formulas = Formulas { cable: text.parse().unwrap(), forwarding };
                let path: Vec<usize> = (0..cables).map(|cable| 2 * cable).collect();
                let formula = formulas.stream(u8::try_from(cables).unwrap());
                let hosts = u16::try_from(cables).unwrap() + 1;
                let mut grains = vec![(Grain::Turns, 300 << 16)];
                if formulas.cable.writer == Writer::Stores {
                    grains.push((Grain::Packets, 4 << 20));
                }
                for (grain, bytes) in grains {
                    let ours = rate(formulas, grain, hosts, std::slice::from_ref(&path), bytes);
                    assert!(
                        near(ours, formula),
                        "{text}, {cables} cables, {pump}, {grain:?}: {ours}, by the formula {formula}"
                    );
                }
            }
        }
    }
}

#[test]
fn plan_rings_that_are_too_short_hold_a_stream_up() {
    let cable: Cable = "gen4 x8, fibre 100 m".parse().unwrap();
    let rate_with = |ring: u64| {
        let forwarding = Forwarding { ring, turn: 8 << 10, ..Forwarding::default() };
        let formulas = Formulas { cable, forwarding };
        let ours = rate(formulas, Grain::Turns, 4, &[vec![0, 2, 4]], 4 << 20);
        (ours, formulas.stream(3))
    };
    let ((short, by_formula), (long, _)) = (rate_with(8 << 10), rate_with(512 << 10));
    assert!(short < 0.6 * long, "{short} with 8 KB, {long} with 512 KB");
    assert!(near(short, by_formula), "{short} bytes/s with a ring of one piece, by the formula {by_formula}");
}

#[test]
fn plan_latency_of_a_line_is_the_sum_of_its_parts() {
    for generation in Generation::ALL {
        for lanes in LANES {
            for (length, hops, cables) in [(1000, 2, 1), (10_000, 0, 2), (3000, 5, 3), (1000, 2, 4)] {
                let cable = Cable { length, hops, ..Cable::new(generation, lanes) };
                let wire =
                    wire_bytes(generation, LINE) as f64 / (f64::from(lanes) * generation.lane_rate() as f64);
                // Store, wire, cable, adapters, landing; between two cables the pump: ns.
                let one =
                    50.0 + wire * 1e9 + 4.5 * f64::from(length) / 1000.0 + 132.0 * f64::from(hops) + 100.0;
                let parts = f64::from(cables) * one + f64::from(cables - 1) * 300.0;
                for grain in [Grain::Packets, Grain::Turns] {
                    let ours = latency(cable, cables, grain, LINE) as f64 / NANOSECOND as f64;
                    assert!(near(ours, parts), "{cable}, {cables} cables, {grain:?}: {ours} ns, {parts} ns");
                }
            }
        }
    }
}

#[test]
fn plan_latency_of_a_record_is_that_of_the_formula() {
    for text in ["gen3 x4", "gen5 x16, fibre 10 m", "gen4 x8, mps 512, dma", "gen1 x1"] {
        for cables in 1..=4_u16 {
            let cable: Cable = text.parse().unwrap();
            let ours = latency(cable, cables, Grain::Turns, 4096);
            let formula = formulas(cable).latency(4096, u8::try_from(cables).unwrap());
            assert!(
                near(ours as f64, formula as f64),
                "{text}, {cables} cables: {ours} ps, by the formula {formula}"
            );
        }
    }
}

/// Picoseconds until `len` bytes are at the far end of a chain of so many cables.
fn latency(cable: Cable, cables: u16, grain: Grain, len: u64) -> u64 {
    let chain = Network::new(Topology::Chain, cables + 1).unwrap();
    let path = Routes::new(&chain).path(0, cables);
    let mut simulation = Simulation::new(&chain, formulas(cable), grain, 1);
    simulation.start(path, len, 0);
    assert_eq!(simulation.run_until(len), Ended::Arrived);
    simulation.now()
}

#[test]
fn plan_wrong_bits_cost_what_is_sent_again() {
    let cable: Cable = "gen3 x8, errors 1e-6, dma".parse().unwrap();
    let formula = formulas(cable).neighbours(false);
    for grain in [Grain::Packets, Grain::Turns] {
        let ours = rate(formulas(cable), grain, 2, &[vec![0]], 100_000 * 256);
        assert!(
            near(ours, formula)
                && ours < 0.999 * formulas(Cable { bit_errors: 0.0, ..cable }).neighbours(false)
        );
    }
}
