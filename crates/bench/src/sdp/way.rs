//! The ways that bytes are sent: between two hosts of a lab by each mode of a stream, and by the kernel's TCP.
//!
//! The programs know nothing of modes. Rules of the lab choose by port, for both ends, so that a mode is forced from
//! outside, as people would do it.

use super::native::Manner;
use crate::program::{LOOPBACK, VETH};
use anyhow::{Context, Result};
use clap::ValueEnum;
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE};
use crosslane_lab::{Lab, Options, Preload, Topology};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

/// The modes that can be forced, as rules and counters name them.
pub const FORCED: [&str; 3] = ["bcopy", "read-zcopy", "write-zcopy"];
/// Whatever is best for each send.
pub const AUTO: &str = "auto";

/// A stream whose port no rule speaks of.
const AUTO_PORT: u16 = 24_000;
/// The port of programs that are written for streams; no rule speaks of it.
const NATIVE_PORT: u16 = 24_100;

/// Where two programs meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A stream over a soft cable; the port decides by what rule.
    Fabric(u16),
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
        let mut ways = vec![Self { name: AUTO, place: Place::Fabric(AUTO_PORT) }];
        ways.extend(
            FORCED
                .into_iter()
                .zip(AUTO_PORT + 1..)
                .map(|(name, port)| Self { name, place: Place::Fabric(port) }),
        );
        ways.extend([
            Self { name: LOOPBACK, place: Place::Loopback },
            Self { name: VETH, place: Place::Veth },
        ]);
        ways
    }

    /// Whether streams carry it.
    pub fn is_ours(self) -> bool {
        matches!(self.place, Place::Fabric(_))
    }

    /// Whether it is a mode forced by hand.
    pub fn is_forced(self) -> bool {
        FORCED.contains(&self.name)
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
            Place::Fabric(port) if way.is_forced() => Some((way.name, port)),
            _ => None,
        });
        let rules = forced.flat_map(|(mode, port)| {
            ["client", "server"].map(|role| format!("transfer {mode} {role} * *:{port}"))
        });
        let options = Options { hosts: 2, topology: Topology::Pair, ..Options::scratch("sdp") };
        let lab =
            Lab::up(&Options { rules: rules.collect(), ..options }).context("the lab does not come up")?;
        Ok(Self { lab, program: std::env::current_exe().context("cannot find my own program")? })
    }

    /// `crosslane bench sdp WORDS`, for the end that listens, and the address that it is to listen at.
    ///
    /// # Errors
    /// There is no socket library.
    pub fn listener(&self, way: Way) -> Result<(Command, SocketAddr)> {
        let at = match way.place {
            Place::Fabric(port) => SocketAddr::new(self.lab.address("h2")?, port),
            Place::Veth => SocketAddr::new(self.lab.baseline("h1", "h2")?, 0),
            Place::Loopback => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
        };
        Ok((self.command(way, "h2")?, at))
    }

    /// The same for the end that connects.
    ///
    /// # Errors
    /// There is no socket library.
    pub fn connector(&self, way: Way) -> Result<Command> {
        self.command(way, "h1")
    }

    fn command(&self, way: Way, host: &str) -> Result<Command> {
        let (host, preload) = match way.place {
            Place::Fabric(_) => (host, Preload::On),
            Place::Veth => (host, Preload::Off),
            Place::Loopback => ("h2", Preload::Off),
        };
        let mut command = self.lab.command(host, preload, &self.program)?;
        command.env(OWN_CALLS_VARIABLE, FILES).args(["bench", "sdp"]);
        Ok(command)
    }

    /// The same for a program that uses streams by itself, without the library: the end that listens.
    ///
    /// # Errors
    /// There is no such host.
    pub fn native_listener(&self, manner: Manner) -> Result<(Command, SocketAddr)> {
        Ok((self.native("h2", manner)?, SocketAddr::new(self.lab.address("h2")?, NATIVE_PORT)))
    }

    /// The end that connects.
    ///
    /// # Errors
    /// There is no such host.
    pub fn native_connector(&self, manner: Manner) -> Result<Command> {
        self.native("h1", manner)
    }

    fn native(&self, host: &str, manner: Manner) -> Result<Command> {
        let mut command = self.lab.command(host, Preload::Off, &self.program)?;
        command.args(["bench", "sdp"]);
        let manner = manner.to_possible_value();
        command.args(manner.map(|manner| format!("--native={}", manner.get_name())));
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_forced_mode_has_a_port_of_its_own() {
        let ports: std::collections::BTreeSet<u16> = Way::all()
            .into_iter()
            .filter_map(|way| if let Place::Fabric(port) = way.place { Some(port) } else { None })
            .collect();
        assert_eq!(ports.len(), 1 + FORCED.len());
        let ours = |name| Way::all().into_iter().find(|way| way.name == name).map(Way::is_ours);
        assert_eq!((ours(AUTO), ours("bcopy"), ours(LOOPBACK)), (Some(true), Some(true), Some(false)));
    }
}
