//! What the configuration says of a port, and how one of any kind is opened: the one place that knows all kinds.

use crosslane_port::kernel::{KernelConfig, KernelPort};
use crosslane_port::posted::{PostedConfig, PostedPort, Stores};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Mapped, PortError};
use std::path::PathBuf;

/// Kind of a port.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PortKind {
    /// Memory between two daemons of one machine.
    Soft,
    /// The same, with stores that land later.
    Posted(Stores),
    /// A bridge, by the kernel module.
    Ntb {
        /// How long a posted store may be under way, ns.
        posted_ns: u32,
    },
}

impl PortKind {
    /// How its stores go, if they land later.
    pub fn stores(self) -> Option<Stores> {
        match self {
            Self::Soft | Self::Ntb { .. } => None,
            Self::Posted(stores) => Some(stores),
        }
    }

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::Posted(_) => "posted",
            Self::Ntb { .. } => "ntb",
        }
    }
}

/// A checked port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortConfig {
    /// Name, for people.
    pub name: String,
    /// What it is.
    pub kind: PortKind,
    /// Path of the socket that both ends of a soft cable share, or of the module's device.
    pub cable: PathBuf,
    /// Whether this end listens; the other connects.
    pub listens: bool,
    /// Bytes of inbound memory; on a bridge at most, it may have less.
    pub window: u64,
    /// Access mode of the cable's socket.
    pub mode: u32,
    /// Whether it begins cut.
    pub cut: bool,
}

/// Opens the port.
///
/// # Errors
/// What the port of that kind says.
pub fn open(config: &PortConfig) -> Result<Box<Mapped>, PortError> {
    let mut soft = SoftConfig::new(config.cable.clone());
    soft.mode = config.mode;
    soft.window_bytes = soft.window_bytes.max(config.window);
    match (config.kind, config.listens) {
        (PortKind::Soft, true) => Ok(Box::new(SoftPort::listen(soft)?)),
        (PortKind::Soft, false) => Ok(Box::new(SoftPort::connect(soft)?)),
        (PortKind::Posted(stores), true) => Ok(Box::new(PostedPort::listen(PostedConfig { soft, stores })?)),
        (PortKind::Posted(stores), false) => {
            Ok(Box::new(PostedPort::connect(PostedConfig { soft, stores })?))
        }
        (PortKind::Ntb { posted_ns }, _) => {
            let (path, window_bytes) = (config.cable.clone(), config.window);
            Ok(Box::new(KernelPort::open(&KernelConfig { path, window_bytes, posted_ns })?))
        }
    }
}
