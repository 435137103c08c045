//! The plan of a lab: pure, no side effects.

use crate::LabError;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

/// Most hosts of a lab; the daemons' limit is 254, the machine's is lower.
pub(crate) const MAX_HOSTS: u8 = 64;

/// Control socket of the daemon in a virtual machine; each machine has a file system of its own for what it writes.
pub(crate) const MACHINE_CONTROL: &str = "/run/crosslane-machine.sock";
/// Most cables of a virtual machine: slots of one PCI bus that nothing else has.
const MOST_CABLES: usize = 8;
/// Most cables between two neighbours.
pub(crate) const MOST_BESIDE: u8 = 4;
/// Most cables of a lab: each has a network of its own beside it.
const MOST_NUMBER: usize = 254;
/// Names of a host's ports, by where their cables lead, and of the further cables there.
const PORTS: [[&str; MOST_BESIDE as usize]; 4] = [
    ["right", "right2", "right3", "right4"],
    ["left", "left2", "left3", "left4"],
    ["down", "down2", "down3", "down4"],
    ["up", "up2", "up3", "up4"],
];
/// Least memory of a virtual machine, MB: a kernel, a daemon, and little for programs.
const LEAST_MEMORY_MB: u32 = 256;

/// How the hosts are cabled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// Each host to the next, the last to the first.
    #[default]
    Ring,
    /// Two hosts and one cable.
    Pair,
    /// Each host to the next; the ends are open.
    Chain,
    /// Rows and columns, as square as the number of hosts allows, each closed to a ring: four cables a host.
    Torus,
}

/// What happens to a stream whose cable is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resilience {
    /// It goes on over another way.
    Keep,
    /// Both ends get an error; no sent data is retained.
    Reset,
}

/// What the cables of a lab are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CableKind {
    /// Memory between two daemons.
    #[default]
    Soft,
    /// The same, with stores that land later, as the daemon's ports of this kind.
    Posted(Posted),
}

/// How stores go over posted cables; `None` for the daemon's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Posted {
    /// Bounds of the delay, us, as `delay_us`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub delay_us: Option<(u32, u32)>,
    /// As `link`: stores land as on this cable, and not after a delay.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub link: Option<crosslane_pcie::Cable>,
    /// As `seed`; each port has one of its own, derived from this.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub seed: Option<u32>,
    /// As `combine`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub combine: Option<bool>,
}

/// Whether a program gets the socket library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// Accelerated: `LD_PRELOAD` and `CROSSLANE_SOCKET` are set.
    On,
    /// Plain: only the kernel's sockets.
    Off,
}

/// What the virtual machines of a lab are like: [`Machines::find`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machines {
    /// Folder with the kernel's image `vmlinuz` and the first file system `initrd.gz`, which `make vm-image` builds.
    pub image: PathBuf,
    /// Memory of each, MB: programs, and all files that they write.
    pub memory_mb: u32,
    /// Processors of each.
    pub processors: u8,
}

/// How to make a lab. Start from [`Options::named`] or [`Options::scratch`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Options {
    /// Name: 1 to 32 of `a-z`, `0-9`, `-`.
    pub name: String,
    /// How many hosts, 1 to 64.
    pub hosts: u8,
    /// How they are cabled.
    pub topology: Topology,
    /// Cables side by side between two neighbours, 1 to 4.
    pub beside: u8,
    /// What the cables are.
    pub cable_kind: CableKind,
    /// Inbound memory of each port, as the daemon's `window`; sparse.
    pub window: String,
    /// Largest ring of a stream, as the daemon's `ring_max`.
    pub ring_max: Option<String>,
    /// Longest spin before a sleep, us, as the daemon's `spin_us`.
    pub spin_us: Option<u32>,
    /// Whether all traffic goes in one direction round the ring, as the daemon's `one_way`.
    pub one_way: bool,
    /// Whether streams are spread over all ways, as the daemon's `all_ways`.
    pub all_ways: bool,
    /// Whether each stream uses two circuits at once, where there are two paths, as the daemon's `stripe`.
    pub stripe: bool,
    /// Whether hosts between copy (pump) where they could hand segments on, as the daemon's `pump`.
    pub pump: bool,
    /// As the daemon's `resilience`; `None` for its default.
    pub resilience: Option<Resilience>,
    /// Rules of all hosts, as the daemon's `rules`.
    pub rules: Vec<String>,
    /// `CROSSLANE_LOG` of the daemons.
    pub log: String,
    /// Whether each daemon counts its cycles, into `HOST.account` in the lab's folder.
    pub counted: bool,
    /// Hosts that are virtual machines; `None`: network namespaces.
    pub machines: Option<Machines>,
    /// End a lab of the same name first.
    pub force: bool,
    /// How long to wait for all links.
    pub patience: Duration,
    /// Folder of all labs; `None` for [`crate::default_base`].
    #[serde(skip)]
    pub base: Option<PathBuf>,
    /// Folder with `crosslaned`, `crosslane-keeper` and the socket library; `None` to find them
    /// ([`crate::Programs::find`]).
    #[serde(skip)]
    pub bin: Option<PathBuf>,
}

impl Options {
    /// A ring of three hosts called `name`.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            hosts: 3,
            topology: Topology::Ring,
            beside: 1,
            cable_kind: CableKind::Soft,
            window: "32G".to_owned(),
            ring_max: None,
            spin_us: None,
            one_way: false,
            all_ways: false,
            stripe: false,
            pump: false,
            resilience: None,
            rules: Vec::new(),
            log: "info".to_owned(),
            counted: false,
            machines: None,
            force: false,
            patience: Duration::from_secs(20),
            base: None,
            bin: None,
        }
    }

    /// As [`Options::named`], with a name of `prefix` and this process's id, so that concurrent tests do not collide.
    pub fn scratch(prefix: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self::named(&format!("{prefix}-{}-{serial}", std::process::id()))
    }

    /// Checks name, number of hosts and topology.
    ///
    /// # Errors
    /// [`LabError::Options`] that says what is allowed.
    pub fn check(&self) -> Result<(), LabError> {
        let (name, hosts) = (&self.name, self.hosts);
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let why = if !(1..=32).contains(&name.len()) || !name.chars().all(good) {
            format!("`{name}` is no name for a lab: use 1 to 32 of a-z, 0-9 and -")
        } else if !(1..=MAX_HOSTS).contains(&hosts) {
            format!("{hosts} hosts: a lab has 1 to {MAX_HOSTS}")
        } else if self.topology == Topology::Pair && hosts != 2 {
            format!("a pair has 2 hosts, not {hosts}: use --topology ring or chain")
        } else if self.topology == Topology::Torus && rows(hosts) < 2 {
            format!("{hosts} hosts make no rows and columns: use a product, as --hosts 9 for 3 x 3")
        } else if !(1..=MOST_BESIDE).contains(&self.beside) {
            format!("{} cables side by side: there are 1 to {MOST_BESIDE}", self.beside)
        } else if each(hosts, self.topology).len() * usize::from(self.beside) > MOST_NUMBER {
            format!("a lab has {MOST_NUMBER} cables at most")
        } else if self.one_way && !goes_round(hosts, &self.cables()) {
            "--one-way: not every host would reach every other; it takes a ring of 3 hosts or more, or a torus \
             whose rows and columns have as many"
                .to_owned()
        } else if self.one_way && self.all_ways {
            "--all-ways: with --one-way there is one way only: leave one of them out".to_owned()
        } else if let Some(machines) = &self.machines {
            return self.check_machines(machines);
        } else {
            return Ok(());
        };
        Err(LabError::Options(why))
    }

    /// The cables between its hosts: the first ones of all neighbours, then the second ones.
    pub(crate) fn cables(&self) -> Vec<Cable> {
        let each = each(self.hosts, self.topology);
        let ends = (0..self.beside).flat_map(|beside| each.iter().map(move |ends| (*ends, beside)));
        let cable = |(number, ((a, b, column), beside))| Cable { number, a, b, column, beside };
        (1..).zip(ends).map(cable).collect()
    }

    fn check_machines(&self, machines: &Machines) -> Result<(), LabError> {
        let cables = self.cables();
        let most = (1..=self.hosts)
            .map(|host| cables.iter().filter(|cable| cable.other(host).is_some()).count())
            .max();
        let why = if machines.memory_mb < LEAST_MEMORY_MB {
            format!("{} MB for a virtual machine: it takes {LEAST_MEMORY_MB} at least", machines.memory_mb)
        } else if machines.processors == 0 {
            "a virtual machine has a processor at least".to_owned()
        } else if self.cable_kind != CableKind::Soft {
            "cables between virtual machines are NTB bridges: leave --cable-kind out".to_owned()
        } else if self.counted {
            "daemons in virtual machines do not count their cycles".to_owned()
        } else if most > Some(MOST_CABLES) {
            format!("a virtual machine has {} cables at most", MOST_CABLES)
        } else {
            return Ok(());
        };
        Err(LabError::Options(why))
    }
}

/// A cable of a lab, and the veth pair beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cable {
    /// Number from 1.
    pub number: u8,
    /// Host id of the side that listens, whose port is `right`, or `down`; of the second cable between two hosts `right2`.
    pub a: u8,
    /// Host id of the side that connects, whose port is `left`, or `up`.
    pub b: u8,
    /// Whether it leads down a column of a torus.
    pub column: bool,
    /// How many cables between these two come before it.
    pub beside: u8,
}

impl Cable {
    /// Address of host `host` on the veth pair beside this cable, if it is one of the two.
    pub fn baseline(&self, host: u8) -> Option<Ipv4Addr> {
        self.end(host).map(|end| Ipv4Addr::new(10, 87, self.number, end))
    }

    /// As [`Cable::baseline`], IPv6.
    pub fn baseline6(&self, host: u8) -> Option<Ipv6Addr> {
        let end = self.end(host)?;
        Some(Ipv6Addr::new(0xfd87, 0, 0, self.number.into(), 0, 0, 0, end.into()))
    }

    /// The host at the other side from `host`.
    pub fn other(&self, host: u8) -> Option<u8> {
        self.end(host).map(|end| if end == 1 { self.b } else { self.a })
    }

    /// What its port of host `host` is called.
    pub fn port_name(&self, host: u8) -> &'static str {
        let leads = usize::from(self.a != host) + 2 * usize::from(self.column);
        PORTS[leads][usize::from(self.beside) % PORTS[leads].len()]
    }

    fn end(&self, host: u8) -> Option<u8> {
        match host {
            h if h == self.a => Some(1),
            h if h == self.b => Some(2),
            _ => None,
        }
    }
}

/// Fabric address of a host.
pub(crate) fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 86, 0, host)
}

/// Fabric address of a host, IPv6.
pub(crate) fn address6(host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd86, 0, 0, 0, 0, 0, 0, host.into())
}

/// The sides of a cable, and whether it leads down a column.
type Ends = (u8, u8, bool);

/// Between which of `hosts` hosts there are cables. Two hosts in a ring are neighbours once.
fn each(hosts: u8, topology: Topology) -> Vec<Ends> {
    let all: Vec<u8> = (1..=hosts).collect();
    let pairs = match topology {
        Topology::Ring => ring(&all),
        Topology::Pair | Topology::Chain => chain(&all),
        Topology::Torus => return torus(hosts),
    };
    pairs.into_iter().map(|(a, b)| (a, b, false)).collect()
}

/// Rows of a torus of `hosts` hosts: the largest divisor that is no larger than the other one.
fn rows(hosts: u8) -> u8 {
    (1..=hosts).filter(|&n| n <= hosts / n && hosts.is_multiple_of(n)).max().unwrap_or(1)
}

/// Rows of `h1 h2 h3`, `h4 h5 h6`, ..
fn torus(hosts: u8) -> Vec<Ends> {
    let columns = hosts / rows(hosts);
    let row = |first: u8| (first..first + columns).collect::<Vec<u8>>();
    let column = |first: u8| (first..=hosts).step_by(columns.into()).collect::<Vec<u8>>();
    let across = (1..=hosts).step_by(columns.into()).flat_map(|first| ring(&row(first)));
    let down = (1..=columns).flat_map(|first| ring(&column(first)));
    across.map(|(a, b)| (a, b, false)).chain(down.map(|(a, b)| (a, b, true))).collect()
}

/// Whether every host reaches every other by cables in one direction, from their sides `a`.
fn goes_round(hosts: u8, cables: &[Cable]) -> bool {
    let reached = |from: fn(&Cable) -> u8, to: fn(&Cable) -> u8| {
        let mut reached = BTreeSet::from([1]);
        // As many rounds as the longest way has cables.
        for _ in 1..hosts {
            let next: Vec<u8> =
                cables.iter().filter(|cable| reached.contains(&from(cable))).map(to).collect();
            reached.extend(next);
        }
        reached.len() == usize::from(hosts)
    };
    // From the first host to all, and from all to the first.
    reached(|cable| cable.a, |cable| cable.b) && reached(|cable| cable.b, |cable| cable.a)
}

fn chain(hosts: &[u8]) -> Vec<(u8, u8)> {
    hosts.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

fn ring(hosts: &[u8]) -> Vec<(u8, u8)> {
    let mut pairs = chain(hosts);
    if let [first, .., last] = hosts
        && hosts.len() > 2
    {
        pairs.push((*last, *first));
    }
    pairs
}

/// The first cable on a shortest way from each host to `to` (index: host id), `None` for `to` itself and for
/// hosts without a way.
pub(crate) fn next_cables(hosts: u8, cables: &[Cable], to: u8) -> Vec<Option<Cable>> {
    let mut first: Vec<Option<Cable>> = vec![None; usize::from(hosts) + 1];
    let mut queue = VecDeque::from([to]);
    while let Some(here) = queue.pop_front() {
        for cable in cables {
            let Some(there) = cable.other(here) else { continue };
            if there != to && first[usize::from(there)].is_none() {
                first[usize::from(there)] = Some(cable.clone());
                queue.push_back(there);
            }
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cables(hosts: u8, topology: Topology) -> Vec<Cable> {
        Options { hosts, topology, ..Options::named("ok") }.cables()
    }

    #[test]
    fn plan_ring_closes_and_chain_does_not() {
        let ring = cables(4, Topology::Ring);
        assert_eq!(ring.len(), 4);
        assert_eq!((ring[3].a, ring[3].b), (4, 1));
        assert_eq!(cables(4, Topology::Chain).len(), 3);
        assert_eq!(cables(2, Topology::Ring).len(), 1);
        assert_eq!(cables(1, Topology::Ring).len(), 0);
    }

    #[test]
    fn plan_torus_has_four_cables_a_host() {
        let torus = cables(9, Topology::Torus);
        assert_eq!(torus.len(), 18);
        let of = |host: u8| {
            let own = torus.iter().filter(|cable| cable.other(host).is_some());
            let mut ends: Vec<_> = own.map(|c| (c.port_name(host), c.other(host).expect("end"))).collect();
            ends.sort_unstable();
            ends
        };
        assert_eq!(of(1), [("down", 4), ("left", 3), ("right", 2), ("up", 7)]);
        assert_eq!(of(5), [("down", 8), ("left", 4), ("right", 6), ("up", 2)]);
        assert_eq!(cables(6, Topology::Torus).len(), 9, "2 x 3: a column of two has one cable");
        assert_eq!((rows(9), rows(12), rows(7), rows(64)), (3, 3, 1, 8));
    }

    #[test]
    fn plan_cables_side_by_side_have_ports_of_their_own() {
        let options = Options { beside: 2, ..Options::named("ok") };
        let cables = options.cables();
        assert_eq!(cables.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        let of = |host: u8| {
            let own = cables.iter().filter(|cable| cable.other(host).is_some());
            own.map(|it| (it.port_name(host), it.other(host).expect("end"))).collect::<Vec<_>>()
        };
        assert_eq!(of(1), [("right", 2), ("left", 3), ("right2", 2), ("left2", 3)]);
        assert_eq!(of(3), [("left", 2), ("right", 1), ("left2", 2), ("right2", 1)]);
        let torus = |hosts, beside| {
            Options { hosts, beside, topology: Topology::Torus, ..Options::named("ok") }.check()
        };
        assert!(torus(9, 4).is_ok() && torus(64, 2).is_err(), "256 cables");
        assert!(torus(9, 0).is_err() && torus(9, 5).is_err());
    }

    #[test]
    fn plan_ways_are_the_shortest() {
        let ring = cables(5, Topology::Ring);
        let ways = next_cables(5, &ring, 1);
        assert_eq!(ways[1], None);
        assert_eq!(ways[2].as_ref().map(|c| c.number), Some(1));
        assert_eq!(ways[3].as_ref().map(|c| c.number), Some(2));
        assert_eq!(ways[4].as_ref().map(|c| c.number), Some(4));
        assert_eq!(ways[5].as_ref().map(|c| c.number), Some(5));
    }

    #[test]
    fn plan_baseline_addresses_are_the_two_ends() {
        let cable = Cable { number: 7, a: 3, b: 4, column: false, beside: 0 };
        assert_eq!(cable.baseline(3), Some(Ipv4Addr::new(10, 87, 7, 1)));
        assert_eq!(cable.baseline(4), Some(Ipv4Addr::new(10, 87, 7, 2)));
        assert_eq!(cable.baseline(5), None);
    }

    #[test]
    fn plan_names_bad_options() {
        let bad = |change: &dyn Fn(&mut Options)| {
            let mut options = Options::named("ok");
            change(&mut options);
            options.check().is_err()
        };
        assert!(Options::named("ok").check().is_ok());
        assert!(bad(&|o| o.name = "../up".to_owned()));
        assert!(bad(&|o| o.name = String::new()));
        assert!(bad(&|o| o.hosts = 0));
        assert!(bad(&|o| o.topology = Topology::Pair));
        assert!(bad(&|o| (o.topology, o.hosts) = (Topology::Torus, 7)));
        let one_way = |topology, hosts| bad(&|o| (o.one_way, o.topology, o.hosts) = (true, topology, hosts));
        let open = [(Topology::Ring, 2), (Topology::Pair, 2), (Topology::Chain, 4), (Topology::Torus, 6)];
        assert!(open.into_iter().all(|(topology, hosts)| one_way(topology, hosts)));
        let closed = [(Topology::Ring, 1), (Topology::Ring, 3), (Topology::Ring, 64), (Topology::Torus, 9)];
        assert!(!closed.into_iter().any(|(topology, hosts)| one_way(topology, hosts)));
    }
}
