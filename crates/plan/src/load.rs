//! Traffic between many hosts at once: what it asks of each direction and of each pump, and which of them is the first that is full.

use crate::formulas::Formulas;
use crate::network::{DirectionId, Network, name};
use crate::routes::Routes;

/// Who sends to whom, each pair as much as each other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every host to every other.
    AllToAll,
    /// Every host of the first half, as [`crate::Bisection`] finds it, to every one of the second half, and back.
    Halves,
}

impl Pattern {
    /// Whether `from` sends to `to`; `half`: which half a host is in.
    pub fn sends(self, half: &[bool], from: u16, to: u16) -> bool {
        match self {
            Self::AllToAll => from != to,
            Self::Halves => half[usize::from(from)] != half[usize::from(to)],
        }
    }
}

/// What is full first.
#[derive(Clone, Debug, PartialEq)]
pub enum Bottleneck {
    /// A direction of a cable.
    Direction(DirectionId),
    /// The pump of a host.
    Pump(u16),
}

impl Bottleneck {
    /// Its name for people.
    pub fn name(&self, network: &Network) -> String {
        match self {
            Self::Direction(direction) => format!("cable {}", network.direction_name(*direction)),
            Self::Pump(host) => format!("forwarding by {}", name(*host)),
        }
    }
}

/// How many pairs of hosts use each part of the network.
#[derive(Clone, Debug)]
pub struct Load {
    /// Of each direction: those whose path begins there, whose bytes a program writes.
    pub own: Vec<u64>,
    /// Of each direction: those whose path goes on there, whose bytes a pump writes.
    pub pumped: Vec<u64>,
    /// Pairs that send.
    pub pairs: u64,
}

impl Load {
    /// Of this pattern.
    pub fn new(routes: &Routes<'_>, pattern: Pattern, half: &[bool]) -> Self {
        let directions = 2 * routes.network().cables().len();
        let mut load = Self { own: vec![0; directions], pumped: vec![0; directions], pairs: 0 };
        for (from, to) in routes.pairs().filter(|(from, to)| pattern.sends(half, *from, *to)) {
            load.pairs += 1;
            let mut first = None;
            for direction in routes.backwards(from, to) {
                load.pumped[direction] += 1;
                first = Some(direction);
            }
            if let Some(first) = first {
                load.pumped[first] -= 1;
                load.own[first] += 1;
            }
        }
        load
    }

    fn of(&self, direction: DirectionId) -> f64 {
        (self.own[direction] + self.pumped[direction]) as f64
    }

    /// Bytes a second of each pair when the first part of the network is full, and which one that is; `None` if no pair sends.
    pub fn each(&self, network: &Network, formulas: &Formulas) -> Option<(f64, Bottleneck)> {
        let directions = (0..self.own.len()).filter(|direction| self.of(*direction) > 0.0).map(|direction| {
            let (ours, others) = (self.of(direction), self.of(direction ^ 1));
            (formulas.beside(others / ours) / ours, Bottleneck::Direction(direction))
        });
        let pumps = (0..network.hosts())
            .filter_map(|host| Some((self.pump(network, formulas, host)?, Bottleneck::Pump(host))));
        directions.chain(pumps).min_by(|(one, _), (other, _)| one.total_cmp(other))
    }

    /// Bytes a second of each pair when the pump of a host is full; `None` if nothing goes through it. With x bytes a second of each pair a
    /// program's piece has a wire for the share `x * own / rate` of the time, and a pump that comes meanwhile waits for half a piece:
    /// `x * copying + x * x * waiting = 1`.
    fn pump(&self, network: &Network, formulas: &Formulas, host: u16) -> Option<f64> {
        let (mut copying, mut waiting) = (0.0, 0.0);
        for &(_, direction) in network.ports(host) {
            let (own, pumped) = (self.own[direction] as f64, self.pumped[direction] as f64);
            copying += pumped / formulas.pump();
            waiting += pumped * own / formulas.neighbours(false).powi(2) / 2.0;
        }
        // The root of the quadratic equation, in the form that also holds without any waiting.
        (copying > 0.0).then(|| 2.0 / (copying + (copying * copying + 4.0 * waiting).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::Forwarding;
    use crate::topology::Topology;

    #[test]
    fn plan_load_of_a_chain_is_counted_by_hand() {
        let network = Network::new(Topology::Chain, 4).unwrap();
        let load = Load::new(&Routes::new(&network), Pattern::AllToAll, &[]);
        // Over h2->h3 go h1 and h2, each to h3 and h4.
        assert_eq!(load.pairs, 12);
        assert_eq!((load.own[2], load.pumped[2]), (2, 2));
        assert_eq!((load.own[0], load.pumped[0]), (3, 0));
        let formulas = Formulas { cable: "gen3 x4".parse().unwrap(), forwarding: Forwarding::default() };
        let (each, bottleneck) = load.each(&network, &formulas).unwrap();
        // h2 passes on two pairs each way; beside them it has two of its own to h3 and h4, and one to h1.
        assert_eq!(bottleneck.name(&network), "forwarding by h2");
        let by_hand = formulas.neighbours(false) * 2.0 / (4.0 + (16.0_f64 + 4.0 * 3.0).sqrt());
        assert!((each / by_hand - 1.0).abs() < 1e-9, "{each}, by hand {by_hand}");
    }

    #[test]
    fn plan_fast_pumps_leave_the_limit_to_cables() {
        let network = Network::new(Topology::Mesh, 3).unwrap();
        let load = Load::new(&Routes::new(&network), Pattern::AllToAll, &[]);
        let formulas = Formulas { cable: "gen3 x4".parse().unwrap(), forwarding: Forwarding::default() };
        let (each, bottleneck) = load.each(&network, &formulas).unwrap();
        assert_eq!((each, bottleneck.name(&network).as_str()), (formulas.neighbours(true), "cable h1->h2"));
    }

    #[test]
    fn plan_slow_pumps_are_full_before_cables() {
        let network = Network::new(Topology::Ring, 6).unwrap();
        let load = Load::new(&Routes::new(&network), Pattern::AllToAll, &[]);
        let forwarding = Forwarding { rate: 1e9, ..Forwarding::default() };
        let formulas = Formulas { cable: "gen3 x4".parse().unwrap(), forwarding };
        let (each, bottleneck) = load.each(&network, &formulas).unwrap();
        // 6 x (1 + 1 + 2) pieces are passed on by 6 hosts, though not by each as many: the path of three cables lies as ports do.
        assert!(matches!(bottleneck, Bottleneck::Pump(_)) && each <= 1e9 / 4.0);
        let pumped: u64 = load.pumped.iter().sum();
        assert_eq!(pumped, 6 * 4);
    }
}
