//! One turn: the kernel's clients have the bridge, then Crosslane has it, or the other way round.

use super::read::{self, Read};
use super::rig::Rig;
use crate::program::ip;
use anyhow::{Result, bail};
use crosslane_lab::Preload;
use indicatif::ProgressBar;
use std::net::IpAddr;
use std::time::Duration;

/// Bytes of a sockperf message.
const MESSAGE: u16 = 64;
/// How many connections are tried until one is a stream: a daemon that has to wait for a processor answers late, and a connection goes by
/// the kernel's TCP after half a second then.
const TRIES: usize = 8;

/// What is measured, in the order in which figures have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Copies into the window.
    Copy,
    /// iperf3.
    Bulk,
    /// sockperf.
    Message,
    /// ping.
    Echo,
}

/// Who carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A stock client: `ntb_perf` or `ntb_netdev`.
    Stock,
    /// A program of Crosslane's that stores into the window by `memcpy`, as streams do.
    Memcpy,
    /// The same by `rep movs`, as `ntb_perf` does.
    RepMovs,
    /// Crosslane's sockets.
    Sockets,
    /// Crosslane's IP, `xl0`.
    Ip,
}

/// One measurement.
pub(super) type Run = (What, By, Result<f64>);

/// All measurements of one turn.
pub(super) fn turn(
    rig: &mut Rig,
    stock_first: bool,
    seconds: u32,
    progress: &ProgressBar,
) -> Result<Vec<Run>> {
    let mut runs = Runs { runs: Vec::new(), seconds, progress };
    if stock_first {
        runs.stock(rig)?;
        runs.crosslane(rig)?;
    } else {
        runs.crosslane(rig)?;
        runs.stock(rig)?;
    }
    Ok(runs.runs)
}

struct Runs<'a> {
    runs: Vec<Run>,
    seconds: u32,
    progress: &'a ProgressBar,
}

impl Runs<'_> {
    fn push(&mut self, what: What, by: By, measure: impl FnOnce() -> Result<f64>) {
        self.progress.set_message(format!("{} by {}", what.name(), by.name(what)));
        self.runs.push((what, by, measure()));
    }

    /// The kernel's own clients, one after the other.
    fn stock(&mut self, rig: &Rig) -> Result<()> {
        self.push(What::Copy, By::Stock, || read::ntb_perf(&rig.ntb_perf()?));
        rig.leave()?;
        rig.netdev()?;
        self.programs(rig, By::Stock, Rig::stock_address()?);
        self.push(What::Echo, By::Stock, || ping(rig, Rig::stock_address()?));
        rig.leave()
    }

    /// Crosslane: stores by a program that has the bridge, then the daemons'.
    fn crosslane(&mut self, rig: &mut Rig) -> Result<()> {
        rig.crosslane()?;
        let seconds = self.seconds;
        self.push(What::Copy, By::Memcpy, || rig.stores(false, seconds));
        self.push(What::Copy, By::RepMovs, || rig.stores(true, seconds));
        rig.start_daemons()?;
        let address = rig.address()?;
        self.programs(rig, By::Sockets, address);
        self.programs(rig, By::Ip, address);
        self.push(What::Echo, By::Ip, || ping(rig, address));
        rig.stop_daemons()
    }

    fn programs(&mut self, rig: &Rig, by: By, address: IpAddr) {
        let seconds = self.seconds;
        self.push(What::Bulk, by, || carried(rig, by, || bulk(rig, by, address, seconds)));
        self.push(What::Message, by, || carried(rig, by, || message(rig, by, address, seconds)));
    }
}

impl What {
    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Bulk => "iperf3, 128 KB",
            Self::Message => "sockperf, 64 B, one way",
            Self::Echo => "ping",
        }
    }
}

impl By {
    /// Its name in tables.
    pub(super) fn name(self, what: What) -> &'static str {
        match (self, what) {
            (Self::Stock, What::Copy) => "ntb_perf",
            (Self::Stock, _) => "ntb_netdev",
            (Self::Memcpy, _) => "stores by memcpy",
            (Self::RepMovs, _) => "stores by rep movs",
            (Self::Sockets, _) => "sockets",
            (Self::Ip, _) => "IP (xl0)",
        }
    }

    fn preload(self) -> Preload {
        if self == Self::Sockets { Preload::On } else { Preload::Off }
    }
}

/// Measures again until streams have carried most of what was sent, if they were to.
fn carried(rig: &Rig, by: By, measure: impl Fn() -> Result<Read>) -> Result<f64> {
    if by != By::Sockets {
        return Ok(measure()?.value);
    }
    for _ in 0..TRIES {
        let before = rig.sent()?;
        let read = measure()?;
        #[expect(clippy::cast_precision_loss, reason = "a comparison with half of it")]
        let sent = rig.sent()?.saturating_sub(before) as f64;
        if sent > read.sent / 2.0 {
            return Ok(read.value);
        }
    }
    bail!("no connection of {TRIES} became a stream")
}

fn bulk(rig: &Rig, by: By, address: IpAddr, seconds: u32) -> Result<Read> {
    let number = rig.new_port();
    let (to, time, port) = (address.to_string(), seconds.to_string(), number.to_string());
    let _server = rig.serve(by.preload(), "iperf3", &["-s", "-p", &port], number)?;
    let words = ["-c", &to, "-p", &port, "-t", &time, "-l", "128K", "-J"];
    let out = rig.ask(by.preload(), "iperf3", &words, Duration::from_secs(seconds.into()))?;
    read::iperf3(&out, seconds.into())
}

fn message(rig: &Rig, by: By, address: IpAddr, seconds: u32) -> Result<Read> {
    let number = rig.new_port();
    let (to, time, port, size) =
        (address.to_string(), seconds.to_string(), number.to_string(), MESSAGE.to_string());
    let server = ["sr", "--tcp", "-i", &to, "-p", &port];
    let _server = rig.serve(by.preload(), "sockperf", &server, number)?;
    let words = ["ping-pong", "--tcp", "-i", &to, "-p", &port, "-m", &size, "-t", &time];
    let out = rig.ask(by.preload(), "sockperf", &words, Duration::from_secs(seconds.into()))?;
    read::sockperf(&out, MESSAGE.into())
}

/// Five times a second, so that everything on the way sleeps in between.
fn ping(rig: &Rig, address: IpAddr) -> Result<f64> {
    let to = address.to_string();
    ip::parse(&rig.ask(
        Preload::Off,
        "ping",
        &["-q", "-i", "0.2", "-c", "15", &to],
        Duration::from_secs(3),
    )?)
}
