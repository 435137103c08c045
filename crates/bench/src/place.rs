//! Where a server and its client run: between two hosts of a lab, accelerated or not, or in one.

use anyhow::{Context, Result};
use crosslane_lab::{Lab, LabError, Machines, Options, Preload, Topology};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

/// Name of the kernel's TCP within one host, the reference of most bars.
pub const LOOPBACK: &str = "loopback TCP";
/// Name of the kernel's TCP between the same two hosts.
pub const VETH: &str = "veth TCP";
/// Name of the fabric's IP between them, with nothing accelerated.
pub const PLAIN_IP: &str = "IP over the fabric";
/// Name of our own place.
pub const CROSSLANE: &str = "crosslane";

/// A place for a server and its client.
pub trait Place {
    /// Its name in tables.
    fn name(&self) -> &str;

    /// A command that runs `program` where servers run.
    ///
    /// # Errors
    /// The place cannot run programs (now).
    fn server(&self, program: &str) -> Result<Command>;

    /// A command that runs `program` where clients run.
    ///
    /// # Errors
    /// The place cannot run programs (now).
    fn client(&self, program: &str) -> Result<Command>;

    /// Address of the server for the client.
    fn address(&self) -> IpAddr;

    /// A port that is free where servers run.
    ///
    /// # Errors
    /// None could be had.
    fn port(&self) -> Result<u16>;

    /// A folder for the server's files, which goes with the place.
    fn folder(&self) -> &Path;

    /// Streams that were opened here so far, and bytes that they have carried; `None` where there are none ever.
    fn carried(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Two hosts of a lab, or one twice.
#[derive(Clone, Debug)]
pub struct InLab<'a> {
    lab: &'a Lab,
    name: &'static str,
    server: &'static str,
    client: &'static str,
    preload: Preload,
    address: IpAddr,
}

/// Ports of servers in hosts of labs: each is given once, since one that was used is not free for a minute.
const PORTS: std::ops::Range<u16> = 20_000..23_000;
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Hosts of a lab that clients and servers run on.
const CLIENT: &str = "h1";
const SERVER: &str = "h2";

impl<'a> InLab<'a> {
    /// Over Crosslane, over the kernel's TCP on the veth pair, and over the loopback of one host.
    ///
    /// # Errors
    /// The lab has no two neighbours `h1` and `h2`.
    pub fn all(lab: &'a Lab) -> Result<[Self; 3]> {
        let [fabric, veth] = Self::between(lab, CLIENT, SERVER)?;
        let address = Ipv4Addr::LOCALHOST.into();
        let loopback = Self { name: LOOPBACK, client: SERVER, address, ..veth.clone() };
        Ok([fabric, veth, loopback])
    }

    /// From `client` to `server`: over Crosslane, and over the kernel's TCP on the veth pairs.
    ///
    /// # Errors
    /// The lab has no such hosts, or no way between them.
    pub fn between(lab: &'a Lab, client: &'static str, server: &'static str) -> Result<[Self; 2]> {
        let place = |name, preload, address| Self { lab, name, server, client, preload, address };
        let (fabric, veth) = (lab.address(server)?, lab.baseline(client, server)?);
        Ok([place(CROSSLANE, Preload::On, fabric), place(VETH, Preload::Off, veth)])
    }

    /// For programs that nothing accelerates: over the fabric's IP, and over the veth pair.
    ///
    /// # Errors
    /// As [`Self::all`].
    pub fn plain(lab: &'a Lab) -> Result<[Self; 2]> {
        let [fabric, veth] = Self::between(lab, CLIENT, SERVER)?;
        Ok([Self { name: PLAIN_IP, preload: Preload::Off, ..fabric }, veth])
    }
}

impl Place for InLab<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn server(&self, program: &str) -> Result<Command> {
        Ok(self.lab.command(self.server, self.preload, program)?)
    }

    fn client(&self, program: &str) -> Result<Command> {
        Ok(self.lab.command(self.client, self.preload, program)?)
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn port(&self) -> Result<u16> {
        let count = PORTS.end - PORTS.start;
        Ok(PORTS.start + NEXT_PORT.fetch_add(1, Relaxed) % count)
    }

    fn folder(&self) -> &Path {
        self.lab.folder()
    }

    fn carried(&self) -> Option<(u64, u64)> {
        if self.preload == Preload::Off {
            return None;
        }
        let counters = self.lab.status(self.client).unwrap_or_default().counters;
        Some((counters.streams_opened, counters.stream_tx_bytes.wrapping_add(counters.stream_rx_bytes)))
    }
}

/// This very machine: loopback, with nothing between. Its folder is removed with it.
#[derive(Debug)]
pub struct Here(tempfile::TempDir);

impl Here {
    /// With a folder of its own.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }
}

impl Place for Here {
    fn name(&self) -> &str {
        LOOPBACK
    }

    fn server(&self, program: &str) -> Result<Command> {
        Ok(Command::new(program))
    }

    fn client(&self, program: &str) -> Result<Command> {
        Ok(Command::new(program))
    }

    fn address(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn port(&self) -> Result<u16> {
        Ok(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?.local_addr()?.port())
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// What a lab of two neighbours is made of, for `purpose`.
pub(crate) fn pair(purpose: &str) -> Options {
    Options { hosts: 2, topology: Topology::Pair, ..Options::scratch(purpose) }
}

/// Processes of the daemons that run.
pub(crate) fn daemons(lab: &Lab) -> Vec<u32> {
    lab.state().hosts.iter().filter_map(|host| host.daemon?.pid.try_into().ok()).collect()
}

/// The image that virtual machines boot, in this folder or where it usually is.
pub(crate) fn machines(image: Option<PathBuf>) -> Result<Machines> {
    match Machines::find(image) {
        Err(LabError::Missing { places, .. }) => {
            anyhow::bail!("there is no image of virtual machines in {places}: build it with `make vm-image`")
        }
        found => Ok(found?),
    }
}

/// Brings a lab up.
pub(crate) fn up(options: &Options) -> Result<Lab> {
    let lab = Lab::up(options).context("the lab does not come up")?;
    if lab.state().accelerator.is_none() {
        keep_few_closed(&lab)?;
    }
    Ok(lab)
}

/// The kernel keeps few of the hosts' closed connections: with tens of thousands the search for a free port would be measured.
fn keep_few_closed(lab: &Lab) -> Result<()> {
    for host in &lab.state().hosts {
        let mut limit = lab.command(&host.name, Preload::Off, "sh")?;
        // Where the files of the kernel cannot be written it keeps what it keeps.
        limit.args(["-c", "echo 4096 > /proc/sys/net/ipv4/tcp_max_tw_buckets"]).stderr(Stdio::null());
        limit.status().context("limit connections in TIME-WAIT")?;
    }
    Ok(())
}

/// Takes it down.
pub(crate) fn down(lab: Lab) -> Result<()> {
    lab.down().context("the lab does not go down")
}
