//! A short script, one unmodified program more: connect, one byte there and back, close, again and again.

use super::process::{Server, find, run};
use super::{Effort, LIMIT, Metric, Program};
use crate::figure::Unit;
use crate::place::Place;
use anyhow::{Context, Result};
use std::process::Command;

/// The script, for servers and clients.
pub(super) const SCRIPT: &str = include_str!("../../scripts/connections.py");

#[derive(Debug)]
pub(super) struct Loop;

impl Program for Loop {
    fn name(&self) -> &'static str {
        "connect loop"
    }

    fn needs(&self) -> &'static [&'static str] {
        &["python3"]
    }

    fn metrics(&self) -> Vec<Metric> {
        vec![Metric::new("connect, 1 byte, close", Unit::PerSecond).bar(0.5, Some(1.0))]
    }

    fn serve(&self, place: &dyn Place, port: u16) -> Result<Server> {
        Server::start(with_script(place.server(python())?, &["serve".to_owned(), port.to_string()]), port)
    }

    fn measure(&self, place: &dyn Place, port: u16, effort: Effort) -> Result<Vec<f64>> {
        let times = 4000 * effort.seconds();
        let words = ["loop".to_owned(), place.address().to_string(), port.to_string(), times.to_string()];
        let out = run(with_script(place.client(python())?, &words), LIMIT)?;
        Ok(vec![out.trim().parse().context("the script printed no rate")?])
    }
}

/// The system's interpreter if it has one: others may be wrappers that start slowly.
pub(super) fn python() -> &'static str {
    if std::path::Path::new("/usr/bin/python3").exists() || find("python3").is_none() {
        "/usr/bin/python3"
    } else {
        "python3"
    }
}

pub(super) fn with_script(mut command: Command, words: &[String]) -> Command {
    command.arg("-c").arg(SCRIPT).args(words);
    command
}
