//! RabbitMQ's broker, with all that it writes in a folder of its own.

use crate::{Site, file};
use anyhow::Result;
use std::process::Command;

/// The broker itself: the program of that name in the search path becomes another user and uses the machine's own folders.
pub const BROKER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
/// Its message when it accepts connections.
pub const READY: &str = "Server startup complete";
/// Ports above the broker's own: for Erlang's node names, and for Erlang's own connections.
const NAMES: u16 = 600;
const NODES: u16 = 500;

/// Erlang's daemon of node names: it must listen before the broker starts, which would leave one behind.
///
/// # Errors
/// The place is gone.
pub fn names(at: &Site<'_>) -> Result<(Command, u16)> {
    let mut command = at.command("epmd")?;
    let port = at.port + NAMES;
    command.args(["-address", "127.0.0.1", "-port", &port.to_string()]);
    Ok((command, port))
}

/// The broker: one node, no plugins, guests may come from anywhere.
///
/// # Errors
/// Its files cannot be written.
pub fn broker(at: &Site<'_>) -> Result<Command> {
    let folder = at.own_folder("rabbitmq")?;
    let text = format!(
        "listeners.tcp.1 = {}\nloopback_users = none\nlog.console = true\nlog.console.level = info\n\
         log.file = false\ndisk_free_limit.absolute = 50MB\n",
        at.socket()
    );
    let (settings, plugins) =
        (file(&folder, "rabbitmq.conf", &text)?, file(&folder, "enabled_plugins", "[].\n")?);
    let mut command = at.command("env")?;
    let mut set = |name: &str, value: &str| {
        command.arg(format!("{name}={value}"));
    };
    let within = |name: &str| folder.join(name).display().to_string();
    set("HOME", &folder.display().to_string());
    set("RABBITMQ_NODENAME", &format!("crosslane-{}@localhost", at.port));
    set("RABBITMQ_CONFIG_FILE", &settings.display().to_string());
    set("RABBITMQ_ENABLED_PLUGINS_FILE", &plugins.display().to_string());
    set("RABBITMQ_CONF_ENV_FILE", "/dev/null");
    set("RABBITMQ_MNESIA_BASE", &within("data"));
    set("RABBITMQ_LOG_BASE", &within("log"));
    set("RABBITMQ_PID_FILE", &within("pid"));
    set("RABBITMQ_DIST_PORT", &(at.port + NODES).to_string());
    set("ERL_EPMD_PORT", &(at.port + NAMES).to_string());
    set("ERL_EPMD_ADDRESS", "127.0.0.1");
    command.arg(BROKER);
    Ok(command)
}
