//! Whatever flows there are: every byte arrives once, in its order, not before it can, and nothing is left over.

use crosslane_plan::simulation::{Grain, Simulation, Step};
use crosslane_plan::{Formulas, Forwarding, Network, Routes};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
struct Flow {
    from: u16,
    to: u16,
    bytes: u64,
    at: u64,
}

fn flows(hosts: u16) -> impl Strategy<Value = Vec<Flow>> {
    let flow = (0..hosts, 0..hosts, 1_u64..300_000, 0_u64..100_000_000);
    let flow = flow.prop_map(|(from, to, bytes, at)| Flow { from, to, bytes, at });
    prop::collection::vec(flow, 1..20)
}

fn networks() -> impl Strategy<Value = (&'static str, u16)> {
    prop::sample::select(vec![
        ("pair", 2),
        ("ring", 3),
        ("ring", 8),
        ("chain", 6),
        ("torus", 12),
        ("mesh", 5),
    ])
}

fn cables() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["gen1 x1", "gen3 x4, errors 1e-7", "gen4 x8, fibre 100 m, dma", "gen6 x16"])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn plan_flows_lose_nothing_and_keep_their_order(
        ((topology, hosts), flows) in networks().prop_flat_map(|it| (Just(it), flows(it.1))),
        cable in cables(),
        (ring, turn) in prop::sample::select(vec![(4096, 4096), (16 << 10, 4096), (512 << 10, 64 << 10)]),
        in_packets in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let network = Network::new(topology.parse().unwrap(), hosts).unwrap();
        let routes = Routes::new(&network);
        let forwarding = Forwarding { ring, turn, ..Forwarding::default() };
        let formulas = Formulas { cable: cable.parse().unwrap(), forwarding };
        let grain = if in_packets { Grain::Packets } else { Grain::Turns };
        let mut simulation = Simulation::new(&network, formulas, grain, seed);
        let mut expected = HashMap::new();
        for flow in flows.iter().filter(|flow| flow.from != flow.to) {
            let id = simulation.start(routes.path(flow.from, flow.to), flow.bytes, flow.at);
            let hops = routes.hops(flow.from, flow.to).unwrap();
            expected.insert(id, (0, flow.bytes, flow.at + formulas.latency(1, hops)));
        }
        while let Some(step) = simulation.step() {
            let Step::Arrived(arrival) = step else { continue };
            let (arrived, bytes, earliest) = expected.get_mut(&arrival.flow).unwrap();
            prop_assert_eq!(arrival.offset, *arrived);
            prop_assert!(arrival.len > 0 && simulation.now() + 1 >= *earliest);
            *arrived += arrival.len;
            prop_assert!(*arrived <= *bytes);
        }
        prop_assert!(expected.values().all(|(arrived, bytes, _)| arrived == bytes));
        prop_assert_eq!(simulation.delivered(), expected.values().map(|(_, bytes, _)| bytes).sum::<u64>());
        prop_assert!(expected.keys().all(|flow| simulation.arrived(*flow).is_none()), "flows that have ended are forgotten");
    }
}
