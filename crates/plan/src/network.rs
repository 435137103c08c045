//! Hosts and the cables between them.

use crate::topology::{BadNetwork, Topology};

/// One direction of a cable: number of the cable times two, and one more for that to its first host.
pub type DirectionId = usize;

/// Hosts, from 0 on, and cables between them. Texts call the first host h1.
#[derive(Clone, Debug)]
pub struct Network {
    hosts: u16,
    cables: Vec<(u16, u16)>,
    /// Of each host its neighbours and the directions to them, in the order of its ports.
    ports: Vec<Vec<(u16, DirectionId)>>,
}

impl Network {
    /// The network of this topology.
    ///
    /// # Errors
    /// The topology has no such number of hosts.
    pub fn new(topology: Topology, hosts: u16) -> Result<Self, BadNetwork> {
        Ok(Self::of(hosts, topology.cables(hosts)?))
    }

    fn of(hosts: u16, cables: Vec<(u16, u16)>) -> Self {
        let mut ports = vec![Vec::new(); usize::from(hosts)];
        for (number, &(one, other)) in cables.iter().enumerate() {
            ports[usize::from(one)].push((other, 2 * number));
            ports[usize::from(other)].push((one, 2 * number + 1));
        }
        Self { hosts, cables, ports }
    }

    /// The same without the cables between these pairs of hosts.
    ///
    /// # Errors
    /// Two hosts have no cable.
    pub fn without(&self, lost: &[(u16, u16)]) -> Result<Self, BadNetwork> {
        let mut cables = self.cables.clone();
        for &(one, other) in lost {
            let place = cables.iter().position(|cable| *cable == (one, other) || *cable == (other, one));
            cables.remove(place.ok_or_else(|| self.no_cable(one, other))?);
        }
        Ok(Self::of(self.hosts, cables))
    }

    fn no_cable(&self, one: u16, other: u16) -> BadNetwork {
        let there = self.ports.get(usize::from(one)).map(|ports| {
            let names: Vec<String> = ports.iter().map(|(host, _)| name(*host)).collect();
            format!("{} has cables to {}", name(one), names.join(", "))
        });
        let why = there.unwrap_or_else(|| format!("its hosts are h1 to h{}", self.hosts));
        BadNetwork::NoCable(one.saturating_add(1), other.saturating_add(1), why)
    }

    /// How many hosts.
    pub fn hosts(&self) -> u16 {
        self.hosts
    }

    /// Its cables.
    pub fn cables(&self) -> &[(u16, u16)] {
        &self.cables
    }

    /// Neighbours of a host and the directions to them, in the order of its ports.
    pub fn ports(&self, host: u16) -> &[(u16, DirectionId)] {
        &self.ports[usize::from(host)]
    }

    /// The hosts at which a direction begins and ends.
    pub fn ends(&self, direction: DirectionId) -> (u16, u16) {
        let (one, other) = self.cables[direction / 2];
        if direction.is_multiple_of(2) { (one, other) } else { (other, one) }
    }

    /// The direction between two neighbours.
    pub fn direction(&self, from: u16, to: u16) -> Option<DirectionId> {
        self.ports(from).iter().find(|(host, _)| *host == to).map(|(_, direction)| *direction)
    }

    /// What a direction is called: `h1->h2`.
    pub fn direction_name(&self, direction: DirectionId) -> String {
        let (from, to) = self.ends(direction);
        format!("{}->{}", name(from), name(to))
    }
}

/// What a host is called: the first one h1.
pub(crate) fn name(host: u16) -> String {
    format!("h{}", u32::from(host) + 1)
}

/// What a cable is called: `h1-h2`.
pub fn cable_name((one, other): (u16, u16)) -> String {
    format!("{}-{}", name(one), name(other))
}

/// Reads `h1-h2` or `1-2`: the two hosts of a cable.
///
/// # Errors
/// It is no such text.
pub fn cable_of(text: &str) -> Result<(u16, u16), BadNetwork> {
    let host = |text: &str| {
        let number: u16 = text.trim().trim_start_matches('h').parse().ok()?;
        number.checked_sub(1)
    };
    let hosts = text.split_once('-').and_then(|(one, other)| Some((host(one)?, host(other)?)));
    hosts.filter(|(one, other)| one != other).ok_or_else(|| BadNetwork::CableText(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_network_loses_cables_by_name() {
        let ring = Network::new(Topology::Ring, 4).unwrap();
        let chain = ring.without(&[cable_of("h1-h4").unwrap()]).unwrap();
        assert_eq!(chain.cables(), [(0, 1), (1, 2), (2, 3)]);
        let why = ring.without(&[(0, 2)]).unwrap_err().to_string();
        assert!(why.contains("no cable h1-h3") && why.contains("h1 has cables to h2, h4"), "{why}");
        assert!(ring.without(&[(0, 1), (1, 0)]).is_err(), "it is lost already");
        assert!(ring.without(&[(7, 8)]).unwrap_err().to_string().contains("h1 to h4"));
        for text in ["h1", "h1-h1", "h0-h1", "x-y", "", "1-70000"] {
            assert!(cable_of(text).unwrap_err().to_string().contains("as h1-h2"), "{text}");
        }
    }

    #[test]
    fn plan_directions_have_their_ends() {
        let ring = Network::new(Topology::Ring, 4).unwrap();
        assert_eq!(
            (ring.direction(0, 1), ring.direction(1, 0), ring.direction(0, 2)),
            (Some(0), Some(1), None)
        );
        assert_eq!((ring.ends(6), ring.ends(7)), ((3, 0), (0, 3)));
        assert_eq!(ring.direction_name(7), "h1->h4");
    }
}
