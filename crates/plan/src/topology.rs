//! How hosts are cabled, and the text that says so.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// Most hosts of a plan. A daemon takes 254 ([`crosslane_fabric::HOST_MAX`]).
pub const MOST_HOSTS: u16 = 512;
/// Most cables of a host: ports of a daemon.
pub const MOST_PORTS: usize = crosslane_wire::control::MAX_LINKS;

/// How hosts are cabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Two hosts and one cable.
    Pair,
    /// Each host to the next, the last to the first.
    Ring,
    /// Each host to the next; the ends are open.
    Chain,
    /// Rows and columns, each closed to a ring: four cables a host, one instead of two along a side of two hosts.
    Torus {
        /// How many rows, and how many columns; `None`: as square as the number of hosts allows.
        size: Option<(u16, u16)>,
    },
    /// Each host to each other.
    Mesh,
}

/// What cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// No such topology.
    #[error(
        "`{0}` is no topology: `pair`, `ring`, `chain`, `mesh`, `torus`, or a torus of so many rows and columns, as `torus-3x4`"
    )]
    Topology(String),
    /// Too few hosts, or too many, for any network.
    #[error("{0} hosts: a plan has 2 to 512")]
    Hosts(u16),
    /// A pair of another number than two.
    #[error("a pair has 2 hosts, not {0}: use a ring or a chain")]
    Pair(u16),
    /// A ring of two.
    #[error("a ring has 3 hosts or more; 2 hosts are a pair")]
    Ring,
    /// Hosts that make no rows and columns.
    #[error("{0} hosts make no rows and columns of 2 or more: use a product, as 12 for 3 x 4")]
    NoTorus(u16),
    /// Rows and columns of another number of hosts, or of fewer than two.
    #[error(
        "a torus of {rows} x {columns} is not of {hosts} hosts: rows and columns are 2 or more, and their product is the number of hosts"
    )]
    TorusSize {
        /// Rows.
        rows: u16,
        /// Columns.
        columns: u16,
        /// Hosts that were asked for.
        hosts: u16,
    },
    /// More cables at a host than a daemon has ports.
    #[error(
        "a mesh of {0} hosts: each would have a cable to each other, and a host has 16 ports at most, which is 17 hosts; use a torus"
    )]
    Ports(u16),
    /// No text of a cable between two hosts.
    #[error("`{0}` is no cable: give its two hosts, as h1-h2")]
    CableText(String),
    /// There is no such cable.
    #[error("there is no cable h{0}-h{1} in this network: {2}")]
    NoCable(u16, u16, String),
}

impl Topology {
    /// Its cables between `hosts` hosts (from 0 on), in the order in which `crosslane lab` makes them, which is that of the hosts' ports.
    ///
    /// # Errors
    /// It has no such number of hosts.
    pub fn cables(self, hosts: u16) -> Result<Vec<(u16, u16)>, BadNetwork> {
        if !(2..=MOST_HOSTS).contains(&hosts) {
            return Err(BadNetwork::Hosts(hosts));
        }
        let all: Vec<u16> = (0..hosts).collect();
        match self {
            Self::Pair if hosts != 2 => Err(BadNetwork::Pair(hosts)),
            Self::Ring if hosts < 3 => Err(BadNetwork::Ring),
            Self::Mesh if usize::from(hosts) > MOST_PORTS + 1 => Err(BadNetwork::Ports(hosts)),
            Self::Pair | Self::Chain => Ok(chain(&all)),
            Self::Ring => Ok(ring(&all)),
            Self::Mesh => Ok(mesh(&all)),
            Self::Torus { .. } => self.sides(hosts).map(|(rows, columns)| torus(rows, columns)),
        }
    }

    /// Rows and columns of a torus of so many hosts; of others one row.
    ///
    /// # Errors
    /// They make no torus.
    pub fn sides(self, hosts: u16) -> Result<(u16, u16), BadNetwork> {
        match self {
            Self::Torus { size: Some((rows, columns)) } => {
                let product = u32::from(rows) * u32::from(columns);
                let fits = rows >= 2 && columns >= 2 && product == u32::from(hosts);
                if fits { Ok((rows, columns)) } else { Err(BadNetwork::TorusSize { rows, columns, hosts }) }
            }
            Self::Torus { size: None } => {
                let rows =
                    (2..=hosts).filter(|&rows| rows <= hosts / rows && hosts.is_multiple_of(rows)).max();
                rows.map(|rows| (rows, hosts / rows)).ok_or(BadNetwork::NoTorus(hosts))
            }
            _ => Ok((1, hosts)),
        }
    }

    /// Hosts that the text of it says already: those of a pair, and of a torus with rows and columns.
    pub fn own_hosts(self) -> Option<u16> {
        match self {
            Self::Pair => Some(2),
            Self::Torus { size: Some((rows, columns)) } => rows.checked_mul(columns),
            _ => None,
        }
    }
}

fn chain(hosts: &[u16]) -> Vec<(u16, u16)> {
    hosts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// Two hosts in a ring have one cable.
fn ring(hosts: &[u16]) -> Vec<(u16, u16)> {
    let mut cables = chain(hosts);
    if let [first, _, .., last] = *hosts
        && hosts.len() > 2
    {
        cables.push((last, first));
    }
    cables
}

fn mesh(hosts: &[u16]) -> Vec<(u16, u16)> {
    hosts
        .iter()
        .flat_map(|one| hosts.iter().filter(move |other| one < other).map(|other| (*one, *other)))
        .collect()
}

fn torus(rows: u16, columns: u16) -> Vec<(u16, u16)> {
    let row = |row: u16| (row * columns..(row + 1) * columns).collect::<Vec<u16>>();
    let column = |column: u16| (0..rows).map(|row| row * columns + column).collect::<Vec<u16>>();
    let across = (0..rows).flat_map(|number| ring(&row(number)));
    let down = (0..columns).flat_map(|number| ring(&column(number)));
    across.chain(down).collect()
}

impl FromStr for Topology {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork::Topology(text.to_owned());
        match text {
            "pair" => Ok(Self::Pair),
            "ring" => Ok(Self::Ring),
            "chain" => Ok(Self::Chain),
            "mesh" => Ok(Self::Mesh),
            "torus" => Ok(Self::Torus { size: None }),
            _ => {
                let size = text
                    .strip_prefix("torus")
                    .and_then(|rest| rest.strip_prefix(['-', ' ']))
                    .ok_or_else(bad)?;
                let (rows, columns) = size.split_once('x').ok_or_else(bad)?;
                let number = |text: &str| text.trim().parse::<u16>().map_err(|_| bad());
                Ok(Self::Torus { size: Some((number(rows)?, number(columns)?)) })
            }
        }
    }
}

impl Display for Topology {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pair => write!(to, "pair"),
            Self::Ring => write!(to, "ring"),
            Self::Chain => write!(to, "chain"),
            Self::Mesh => write!(to, "mesh"),
            Self::Torus { size: None } => write!(to, "torus"),
            Self::Torus { size: Some((rows, columns)) } => write!(to, "torus-{rows}x{columns}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_topologies_have_their_cables() {
        let count = |text: &str, hosts| text.parse::<Topology>().unwrap().cables(hosts).unwrap().len();
        assert_eq!(
            [count("pair", 2), count("ring", 12), count("chain", 12), count("mesh", 5)],
            [1, 12, 11, 10]
        );
        assert_eq!([count("torus", 12), count("torus-2x3", 6), count("torus", 512)], [24, 9, 1024]);
        assert_eq!(Topology::Ring.cables(4).unwrap(), [(0, 1), (1, 2), (2, 3), (3, 0)]);
    }

    #[test]
    fn plan_networks_that_cannot_be_say_why() {
        let why = |text: &str, hosts| {
            text.parse::<Topology>().and_then(|it| it.cables(hosts)).unwrap_err().to_string()
        };
        for (text, hosts, words) in [
            ("star", 3, "`pair`, `ring`"),
            ("torus-3", 3, "torus-3x4"),
            ("torus-ax3", 3, "torus-3x4"),
            ("ring", 1, "2 to 512"),
            ("ring", 513, "2 to 512"),
            ("ring", 2, "are a pair"),
            ("pair", 3, "ring or a chain"),
            ("torus", 7, "12 for 3 x 4"),
            ("torus-3x4", 10, "not of 10 hosts"),
            ("torus-1x4", 4, "2 or more"),
            ("torus-60000x60000", 4, "60000 x 60000"),
            ("mesh", 18, "17 hosts"),
        ] {
            assert!(why(text, hosts).contains(words), "{text} of {hosts}: {}", why(text, hosts));
        }
    }

    #[test]
    fn plan_texts_of_topologies_are_read_and_written() {
        for text in ["pair", "ring", "chain", "mesh", "torus", "torus-3x4"] {
            assert_eq!(text.parse::<Topology>().unwrap().to_string(), text);
        }
        assert_eq!("torus 3x4".parse::<Topology>().unwrap().own_hosts(), Some(12));
    }
}
