//! Two halves of a network, and the fewest cables between them.

use crate::network::Network;

/// Two halves with the fewest cables between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bisection {
    /// Of each host whether it is in the second half, which has one more if the number is odd.
    pub half: Vec<bool>,
    /// Numbers of the cables between them.
    pub cables: Vec<usize>,
}

impl Bisection {
    /// Of a network of so many rows, as its topology has them. Looked for among all halves of hosts one behind the other, row by row and
    /// column by column, beginning at any host: for a whole ring, chain, mesh and torus no halves have fewer cables between them (tests
    /// compare all halves of small ones).
    pub fn new(network: &Network, (rows, columns): (u16, u16)) -> Self {
        let hosts = network.hosts();
        let by_column = |at: u16| (at % rows) * columns + at / rows;
        let orders: [Vec<u16>; 2] = [(0..hosts).collect(), (0..hosts).map(by_column).collect()];
        let cuts = orders.iter().take(if rows > 1 { 2 } else { 1 }).flat_map(|order| {
            (0..hosts).map(|first| {
                let mut half = vec![true; usize::from(hosts)];
                for at in 0..hosts / 2 {
                    half[usize::from(order[usize::from((first + at) % hosts)])] = false;
                }
                half
            })
        });
        let best = cuts.min_by_key(|half| between(network, half).count()).unwrap_or_default();
        let cables = between(network, &best).collect();
        Self { half: best, cables }
    }
}

/// Cables between the two halves.
fn between<'a>(network: &'a Network, half: &'a [bool]) -> impl Iterator<Item = usize> + 'a {
    let cut = |(_, (one, other)): &(usize, &(u16, u16))| half[usize::from(*one)] != half[usize::from(*other)];
    network.cables().iter().enumerate().filter(cut).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    fn found(text: &str, hosts: u16) -> usize {
        let topology: Topology = text.parse().unwrap();
        let network = Network::new(topology, hosts).unwrap();
        Bisection::new(&network, topology.sides(hosts).unwrap()).cables.len()
    }

    /// The fewest cables between any two halves.
    fn least(text: &str, hosts: u16) -> usize {
        let network = Network::new(text.parse().unwrap(), hosts).unwrap();
        let halves = (0_u32..1 << hosts).filter(|set| set.count_ones() == u32::from(hosts) / 2);
        let half = |set: u32| (0..hosts).map(|host| set >> host & 1 == 0).collect::<Vec<bool>>();
        halves.map(|set| between(&network, &half(set)).count()).min().unwrap()
    }

    #[test]
    fn plan_bisection_has_the_fewest_cables_of_all_halves() {
        for (text, hosts) in [
            ("pair", 2),
            ("ring", 3),
            ("ring", 9),
            ("ring", 12),
            ("chain", 2),
            ("chain", 7),
            ("chain", 12),
            ("mesh", 6),
            ("mesh", 7),
            ("torus", 4),
            ("torus", 9),
            ("torus-2x5", 10),
            ("torus-4x3", 12),
            ("torus-3x5", 15),
            ("torus", 16),
        ] {
            assert_eq!(found(text, hosts), least(text, hosts), "{text} of {hosts}");
        }
    }

    #[test]
    fn plan_bisection_of_large_networks_is_known() {
        assert_eq!([found("ring", 512), found("chain", 511), found("torus-16x16", 256)], [2, 1, 32]);
        assert_eq!(found("torus-16x32", 512), 32);
    }

    #[test]
    fn plan_bisection_of_a_cut_ring_is_one_cable() {
        let ring = Network::new(Topology::Ring, 8).unwrap();
        let chain = ring.without(&[(2, 3)]).unwrap();
        assert_eq!(Bisection::new(&chain, (1, 8)).cables.len(), 1);
        let parted = chain.without(&[(6, 7)]).unwrap();
        assert_eq!(Bisection::new(&parted, (1, 8)).cables.len(), 0);
    }
}
