//! Opens a port of whatever kind the configuration names: the one place that knows all kinds.

use crate::config::{PortConfig, PortKind};
use crosslane_port::posted::{PostedConfig, PostedPort};
use crosslane_port::soft::{SoftConfig, SoftPort};
use crosslane_port::{Mapped, PortError};

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
    }
}
