//! The command `crosslaned`: arguments, start, exit codes.

use crate::cable::Cable;
use crate::cables::Cables;
use crate::config::Config;
use crate::control::{ControlError, ControlSocket};
use crate::engine::Engine;
use crate::host::Host;
use crate::inside::Inside;
use crate::keys::{KeyError, KeyRing};
use crate::log;
use crate::metrics;
use crate::signal::{Signals, raise_descriptor_limit};
use crate::tun::Tun;
use anyhow::Context;
use clap::Parser;
use crosslane_wire::PortId;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code: something failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit code: the configuration (or the command line) is wrong.
pub const EXIT_CONFIG: u8 = 2;
/// Exit code: another daemon has the control socket.
pub const EXIT_IN_USE: u8 = 3;

/// The Crosslane daemon: joins this host's NTB ports into the network and serves its programs.
///
/// Exit codes: 0 stopped in order, 1 failed, 2 wrong configuration or arguments, 3 another daemon has the control
/// socket. SIGHUP reads the quotas and rules of the configuration file again: which connections are streams (`use`), how those move
/// their data (`transfer`), whether the daemon's engine copies for them (`offload`, also a key for all), and the files of keys. Logs go to
/// standard error; CROSSLANE_LOG chooses what is logged (for example `debug`).
#[derive(Debug, Parser)]
#[command(name = "crosslaned", version)]
pub struct Arguments {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Only check the configuration.
    #[arg(long)]
    pub check: bool,
}

/// Runs the daemon with these arguments until a signal stops it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let _log = log::begin();
    crosslane_shm::account::begin_if_asked();
    let config = match Config::read(&arguments.config) {
        Ok(config) => config,
        Err(error) => {
            complain(&error);
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    if arguments.check {
        if let Err(error) = KeyRing::load(&config) {
            eprintln!("crosslaned: {error}");
            return ExitCode::from(EXIT_CONFIG);
        }
        println!(
            "{}: good, host {}, {} ports",
            arguments.config.display(),
            config.addresses.me,
            config.ports.len()
        );
        return ExitCode::SUCCESS;
    }
    match serve(config, &arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format_args!("{error:#}"));
            match error.downcast_ref::<ControlError>() {
                Some(ControlError::InUse(_)) => ExitCode::from(EXIT_IN_USE),
                _ if error.is::<KeyError>() => ExitCode::from(EXIT_CONFIG),
                _ => ExitCode::from(EXIT_FAILED),
            }
        }
    }
}

/// Writes an error to standard error, whose reader may have closed it.
fn complain(error: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "crosslaned: {error}");
}

/// Runs the daemon with `config`, which was read from `file`, until a signal stops it.
///
/// # Errors
/// The files of keys are invalid; the control socket, the interface, a port or the metrics' address is not available; or epoll fails.
pub fn serve(config: Config, file: &Path) -> anyhow::Result<()> {
    let keys = KeyRing::load(&config)?;
    raise_descriptor_limit();
    let signals = Signals::open().context("signals")?;
    let control = ControlSocket::open(&config.control)?;
    let tun = config.interface.as_deref().map(|name| Tun::open(name, &config)).transpose()?;
    let cables = open_cables(&config)?;
    let inside = Inside::new(config.inside.stores()).context("inside")?;
    let metrics = match config.metrics {
        Some(address) => {
            Some(metrics::Server::open(address).with_context(|| format!("metrics at {address}"))?)
        }
        None => None,
    };
    let (host, path) = (config.addresses.me, config.control.clone());
    let mut host_state = Host::new(config, (cables, inside), tun).context("pumps, or netlink")?;
    host_state.use_keys(keys);
    if let Some(metrics) = metrics {
        host_state.texts.writer().serve(metrics);
    }
    let mut engine = Engine::new(host_state, control, signals, file.to_owned()).context("epoll")?;
    tracing::info!(%host, control = %path.display(), "ready");
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    let outcome = engine.run().context("engine");
    let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Stopping]);
    outcome
}

fn open_cables(config: &Config) -> anyhow::Result<Cables> {
    let mut cables = Vec::new();
    for (index, port) in config.ports.iter().enumerate() {
        let id = PortId(u8::try_from(index).context("too many ports")?);
        if let Some(folder) = port.cable.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("port {}: {}", port.name, folder.display()))?;
        }
        let cable = Cable::open(id, config.addresses.me, port.clone())
            .with_context(|| format!("port {}: cable {}", port.name, port.cable.display()))?;
        cables.push(cable);
    }
    Ok(Cables::new(cables))
}
