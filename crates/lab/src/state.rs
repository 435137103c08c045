//! The state of a lab that is up: written by its keeper alone, read by everyone.

use crate::LabError;
use crate::plan::{Cable, Topology, next_cables};
use crate::process::Identity;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// A lab, as its keeper has it in `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Name of the lab.
    pub name: String,
    /// How it is cabled.
    pub topology: Topology,
    /// Mark of this life of the lab: `CROSSLANE_LAB` in the environment of all that runs in it.
    pub mark: String,
    /// The process that holds the namespaces.
    pub keeper: Identity,
    /// Whether all daemons have been started.
    pub ready: bool,
    /// Descriptor of the user namespace in the keeper, of an ordinary user's lab.
    pub user: Option<i32>,
    /// Whether the fabric addresses are on the daemons' own interfaces (else, without a usable
    /// `/dev/net/tun`, on the veth pairs).
    pub tun: bool,
    /// The keeper's program, which also enters hosts.
    pub program: PathBuf,
    /// The socket library, if it was built when the lab was made.
    pub sockets: Option<PathBuf>,
    /// What runs its virtual machines: `kvm` or `tcg`; none: hosts are network namespaces.
    pub accelerator: Option<String>,
    /// Its hosts, `h1` first.
    pub hosts: Vec<HostState>,
    /// Its cables.
    pub cables: Vec<Cable>,
    /// Numbers of the cables that are cut.
    pub cut: Vec<u8>,
}

/// One host of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostState {
    /// `h1`, `h2`, ..
    pub name: String,
    /// Host id: 1, 2, ..
    pub id: u8,
    /// Fabric address.
    pub address: Ipv4Addr,
    /// Fabric address, IPv6.
    pub address6: Ipv6Addr,
    /// Control socket of its daemon.
    pub control: PathBuf,
    /// Configuration of its daemon.
    pub config: PathBuf,
    /// What its daemon prints.
    pub log: PathBuf,
    /// Descriptor of its network namespace in the keeper.
    pub network: i32,
    /// Inode of that namespace.
    pub inode: u64,
    /// Its daemon, if that runs.
    pub daemon: Option<Identity>,
}

impl State {
    /// The host called `name` (`h2`, or just `2`).
    ///
    /// # Errors
    /// [`LabError::NoHost`].
    pub fn host(&self, name: &str) -> Result<&HostState, LabError> {
        self.hosts.iter().find(|h| h.name == name || h.id.to_string() == name).ok_or_else(|| {
            LabError::NoHost {
                host: name.to_owned(),
                name: self.name.clone(),
                hosts: self.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(", "),
            }
        })
    }

    /// The cable between two hosts; of several, the first that is cut, or the first that is not.
    ///
    /// # Errors
    /// [`LabError::NoCable`].
    pub fn cable(&self, one: &HostState, other: &HostState, cut: bool) -> Result<&Cable, LabError> {
        let between = || self.cables.iter().filter(|cable| cable.other(one.id) == Some(other.id));
        let first = between().find(|cable| self.cut.contains(&cable.number) == cut);
        first.or_else(|| between().next()).ok_or_else(|| {
            let neighbours = self.cables.iter().filter_map(|cable| cable.other(one.id));
            let neighbours: Vec<String> = neighbours.map(|id| format!("h{id}")).collect();
            LabError::NoCable {
                one: one.name.clone(),
                other: other.name.clone(),
                neighbours: if neighbours.is_empty() { "nobody".to_owned() } else { neighbours.join(", ") },
            }
        })
    }

    /// Number of a cable among the cables of a host: that of its device in a virtual machine.
    pub(crate) fn device(&self, host: u8, cable: &Cable) -> usize {
        let own = self.cables.iter().filter(|it| it.other(host).is_some());
        own.take_while(|it| it.number != cable.number).count()
    }

    /// The cables that are not cut.
    pub fn whole_cables(&self) -> impl Iterator<Item = &Cable> {
        self.cables.iter().filter(|cable| !self.cut.contains(&cable.number))
    }

    /// Names of the ports of a host whose cables are not cut.
    pub(crate) fn ports(&self, host: &HostState) -> Vec<&'static str> {
        let own = self.whole_cables().filter(|cable| cable.other(host.id).is_some());
        own.map(|cable| cable.port_name(host.id)).collect()
    }

    /// The other hosts to which a way leads from a host over cables that are not cut.
    pub(crate) fn reachable(&self, host: &HostState) -> Vec<u8> {
        let cables: Vec<Cable> = self.whole_cables().cloned().collect();
        let hosts = u8::try_from(self.hosts.len()).unwrap_or(u8::MAX);
        let ways = next_cables(hosts, &cables, host.id);
        (1..=hosts).filter(|&id| ways[usize::from(id)].is_some()).collect()
    }

    /// Addresses of two hosts on the veth pairs beside the first and the last cable of a shortest way between them,
    /// `None` if there is none.
    pub fn baseline(&self, one: &HostState, other: &HostState) -> Option<(IpAddr, IpAddr)> {
        let hosts = u8::try_from(self.hosts.len()).unwrap_or(u8::MAX);
        let end = |here: &HostState, there: &HostState| {
            let way = next_cables(hosts, &self.cables, there.id).swap_remove(usize::from(here.id))?;
            Some(way.baseline(here.id)?.into())
        };
        Some((end(one, other)?, end(other, one)?))
    }

    /// The environment entry that marks what runs in this life of the lab.
    pub(crate) fn mark_entry(&self) -> String {
        format!("CROSSLANE_LAB={}", self.mark)
    }

    pub(crate) fn networks(&self) -> Vec<u64> {
        self.hosts.iter().map(|h| h.inode).collect()
    }

    /// Writes the state atomically: a reader finds the old or the new one.
    pub(crate) fn store(&self, path: &Path) -> Result<(), LabError> {
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(self).map_err(LabError::io("encode the lab's state"))?;
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, path))
            .map_err(LabError::io(format!("write {}", path.display())))
    }
}
