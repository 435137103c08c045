//! `crosslane config check`.

use crate::exit;
use anyhow::Result;
use crosslane_node::config::Config;
use crosslane_node::keys::KeyRing;
use std::io::{Write, stdout};
use std::path::Path;

/// Checks a configuration file as the daemon would, and prints the settings.
///
/// # Errors
/// The daemon's error.
pub(crate) fn check(file: &Path) -> Result<()> {
    let config = Config::read(file)?;
    let keys = KeyRing::load(&config).map_err(|error| exit::usage(error.to_string()))?;
    let mut out = stdout().lock();
    writeln!(out, "{}: good", file.display())?;
    let [v4, v6] = config.addresses.of(config.addresses.me);
    writeln!(out, "host {}: {v4}, {v6}", config.addresses.me)?;
    writeln!(out, "control socket {}", config.control.display())?;
    match &config.interface {
        Some(name) => writeln!(out, "interface {name}, MTU {} bytes", config.mtu)?,
        None => writeln!(out, "no interface: the hosts reach each other's addresses by another network")?,
    }
    writeln!(
        out,
        "streams: rings of at most {}, spins of at most {} us",
        size(config.ring_max),
        config.spin_us
    )?;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    writeln!(out, "link states: signed {}, checked {}", yes(keys.signs()), yes(keys.checks()))?;
    for (network, host) in &config.networks {
        writeln!(out, "network {network} is behind host {host}")?;
    }
    if let Some(address) = config.metrics {
        writeln!(out, "metrics at http://{address}/metrics")?;
    }
    writeln!(out, "{} rules, the built-in ones among them", config.rules.len())?;
    for port in &config.ports {
        let side = if port.listens { "listens" } else { "connects" };
        writeln!(
            out,
            "port {}: {side} at {}, window {}",
            port.name,
            port.cable.display(),
            size(port.window)
        )?;
    }
    Ok(())
}

/// A size as one would write it in the file.
fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let fits = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    fits.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_sizes_are_as_in_the_file() {
        let sizes: Vec<String> = [16 << 30, 8 << 20, 65536, 1000, 3 << 39].map(size).into();
        assert_eq!(sizes, ["16G", "8M", "64K", "1000", "1536G"]);
    }
}
