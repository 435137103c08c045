//! A short script, one unmodified program more: connect, one byte there and back, close, again and again.

use super::process::{Server, find, run};
use super::{LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::Result;
use crosslane_apps::script::CONNECTIONS;
use crosslane_apps::work::Work;
use std::process::Command;

pub(super) const LOOP: Program = Program {
    name: "connect loop",
    needs: &["python3"],
    metrics: &[Metric::new("connect, 1 byte, close", Unit::PerSecond).bar(0.5, Some(1.0))],
    serve,
    measure: |place, port, effort| {
        let seconds = effort.seconds().to_string();
        let command = with_script(place.client(python())?, "rate", place, port, &[&seconds, "row"]);
        Ok(vec![Work::json(&run(command, LIMIT)?)?.rate()])
    },
};

/// The server of the script.
///
/// # Errors
/// It does not listen.
pub(super) fn serve(place: &dyn Place, port: u16) -> Result<Server> {
    Server::start(with_script(place.server(python())?, "server", place, port, &[]), port)
}

/// The system's interpreter if it has one: others may be wrappers that start slowly.
pub(super) fn python() -> &'static str {
    if std::path::Path::new("/usr/bin/python3").exists() || find("python3").is_none() {
        "/usr/bin/python3"
    } else {
        "python3"
    }
}

/// `command` with the script's words: `role`, where the server is, and `more`.
pub(super) fn with_script(
    mut command: Command,
    role: &str,
    place: &dyn Place,
    port: u16,
    more: &[&str],
) -> Command {
    let to = [place.address().to_string(), port.to_string()];
    command.arg("-c").arg(CONNECTIONS).arg(role).args(to).args(more);
    command
}
