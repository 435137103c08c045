//! The ways that bytes are sent: between two hosts of a lab by each mode of a stream, and by the kernel's TCP.
//!
//! The programs know nothing of modes. Rules of the lab choose by port, for both ends, so that a mode is forced from
//! outside, as users would do it.

use super::native::Manner;
use super::pair::{Done, Pair};
use crate::place;
use crate::program::{LOOPBACK, VETH};
use crate::speaker::own_program;
use anyhow::Result;
use clap::ValueEnum;
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::{Lab, Options, Preload};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The modes that can be forced, as rules and counters name them.
pub const FORCED: [&str; 3] = ["bcopy", "read-zcopy", "write-zcopy"];
/// The automatic choice for each send.
pub const AUTO: &str = "auto";

/// A stream whose port has no rule.
const AUTO_PORT: u16 = 24_000;
/// The port of programs that are written for streams; no rule has it.
const NATIVE_PORT: u16 = 24_100;

/// Where two programs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A stream over a soft cable; the port decides by what rule.
    Fabric(u16),
    /// The same between programs that are written for streams, without the library.
    Native(Manner),
    /// The kernel's TCP over a veth pair between the same two network namespaces.
    Veth,
    /// The kernel's TCP inside one of the hosts.
    Loopback,
}

/// One way of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its name in tables.
    pub name: &'static str,
    place: Place,
}

impl Way {
    /// All of them, in the order of the table.
    pub fn all() -> Vec<Self> {
        let forced = FORCED.into_iter().zip(AUTO_PORT + 1..);
        let fabric = [(AUTO, AUTO_PORT)].into_iter().chain(forced);
        let fabric = fabric.map(|(name, port)| Self { name, place: Place::Fabric(port) });
        let kernel = [(LOOPBACK, Place::Loopback), (VETH, Place::Veth)];
        fabric.chain(kernel.map(|(name, place)| Self { name, place })).collect()
    }

    /// Programs that are written for streams.
    pub fn native(manner: Manner) -> Self {
        Self { name: manner.name(), place: Place::Native(manner) }
    }

    /// Whether streams carry it.
    pub fn is_ours(self) -> bool {
        matches!(self.place, Place::Fabric(_) | Place::Native(_))
    }

    /// The mode that alone is to carry the bytes, as counters name it.
    pub fn mode(self) -> Option<&'static str> {
        match self.place {
            Place::Native(manner) => Some(manner.mode()),
            _ => FORCED.into_iter().find(|mode| *mode == self.name),
        }
    }
}

/// Two hosts and a soft cable, and this program in them.
#[derive(Debug)]
pub struct Rig {
    /// The lab.
    pub lab: Lab,
    program: PathBuf,
}

impl Rig {
    /// Brings the lab up, with a rule for each forced mode and each end.
    ///
    /// # Errors
    /// It does not come up.
    pub fn new() -> Result<Self> {
        let forced = Way::all().into_iter().filter_map(|way| match way.place {
            Place::Fabric(port) => Some((way.mode()?, port)),
            _ => None,
        });
        let rules = forced.flat_map(|(mode, port)| {
            ["client", "server"].map(|role| format!("transfer {mode} {role} * *:{port}"))
        });
        let lab = place::up(&Options { rules: rules.collect(), ..place::pair("sdp") })?;
        Ok(Self { lab, program: own_program()? })
    }

    /// The work of two programs in a window of time, given their roles, the meeting point and `sizes`.
    ///
    /// # Errors
    /// There is no socket library, or a program fails.
    pub fn run(
        &self,
        way: Way,
        [listener, connector]: [&str; 2],
        sizes: &[usize],
        time: Duration,
    ) -> Result<Done> {
        let at = match way.place {
            Place::Fabric(port) => SocketAddr::new(self.lab.address("h2")?, port),
            Place::Native(_) => SocketAddr::new(self.lab.address("h2")?, NATIVE_PORT),
            Place::Veth => SocketAddr::new(self.lab.baseline("h1", "h2")?, 0),
            Place::Loopback => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        };
        let words = |role: &str, at: SocketAddr| {
            let sizes = sizes.iter().map(usize::to_string);
            [role.to_owned(), at.to_string()].into_iter().chain(sizes).collect::<Vec<_>>()
        };
        let listener = self.command(way, "h2", &words(listener, at))?;
        let pair = Pair::start(listener, |to| self.command(way, "h1", &words(connector, to)))?;
        pair.measure(time, way.is_ours().then_some(&self.lab))
    }

    /// `crosslane bench sdp WORDS`.
    fn command(&self, way: Way, host: &str, words: &[String]) -> Result<Command> {
        let (host, preload) = match way.place {
            Place::Fabric(_) => (host, Preload::On),
            Place::Veth | Place::Native(_) => (host, Preload::Off),
            Place::Loopback => ("h2", Preload::Off),
        };
        let mut command = self.lab.command(host, preload, &self.program)?;
        command.args(["bench", "sdp"]);
        if let Place::Native(manner) = way.place {
            let manner = manner.to_possible_value();
            command.args(manner.map(|manner| format!("--native={}", manner.get_name())));
        } else {
            command.env(OWN_CALLS_VARIABLE, FILES);
        }
        command.args(words);
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forced_mode_has_its_own_port() {
        let ports: std::collections::BTreeSet<u16> = Way::all()
            .into_iter()
            .filter_map(|way| if let Place::Fabric(port) = way.place { Some(port) } else { None })
            .collect();
        assert_eq!(ports.len(), 1 + FORCED.len());
        let ours = |name| Way::all().into_iter().find(|way| way.name == name).map(Way::is_ours);
        assert_eq!((ours(AUTO), ours("bcopy"), ours(LOOPBACK)), (Some(true), Some(true), Some(false)));
    }
}
