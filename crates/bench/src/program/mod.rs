//! Unmodified programs: how each is started, and how its output is parsed.

mod connect;
mod curl;
mod idle;
pub(crate) mod ip;
pub(crate) mod iperf3;
mod netperf;
pub mod process;
pub(crate) mod redis;
mod relay;
pub(crate) mod sockperf;
pub(crate) mod web;

use crate::figure::Unit;
use crate::place::Place;
pub use crate::place::{CROSSLANE, LOOPBACK, PLAIN_IP, VETH};
use anyhow::Result;
use process::Server;
use std::time::Duration;

/// How long a client may take whose work is a number of requests.
const LIMIT: Duration = Duration::from_secs(20);

/// One number of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// What it is.
    pub case: &'static str,
    /// In what.
    pub unit: Unit,
    /// The reference of the bar.
    pub against: &'static str,
    /// Least ratio to that, and the desired one.
    pub bar: Option<(f64, Option<f64>)>,
    /// The bar is against this other metric (by index) of the reference.
    pub other: Option<usize>,
}

impl Metric {
    const fn new(case: &'static str, unit: Unit) -> Self {
        Self { case, unit, against: LOOPBACK, bar: None, other: None }
    }

    const fn bar(mut self, least: f64, goal: Option<f64>) -> Self {
        self.bar = Some((least, goal));
        self
    }
}

/// How long one run of a program lasts, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// About a second.
    Short,
    /// About three seconds.
    Long,
}

impl Effort {
    pub(crate) fn seconds(self) -> u32 {
        match self {
            Self::Short => 1,
            Self::Long => 3,
        }
    }
}

/// A server and a client that measures it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// Programs that must be installed.
    pub needs: &'static [&'static str],
    /// What a run gives, in order.
    pub metrics: &'static [Metric],
    /// Starts the server. Fails if it does not listen.
    pub serve: fn(&dyn Place, u16) -> Result<Server>,
    /// Runs the client once: one number for each metric. Fails if the client fails, takes too long, or prints something
    /// that cannot be parsed.
    pub measure: fn(&dyn Place, u16, Effort) -> Result<Vec<f64>>,
}

/// The programs that have bars, and other well-known ones.
pub fn all() -> Vec<Program> {
    let web = [web::requests(), curl::LARGE_FILE, web::CONNECTIONS];
    [&[IPERF3, SOCKPERF, redis::ONE, redis::FIFTY][..], &web, &[connect::LOOP, NETPERF]].concat()
}

/// Those of the demonstration.
pub fn shown() -> Vec<Program> {
    let web = [curl::LARGE_FILE, web::requests(), NETPERF];
    [&[IPERF3, SOCKPERF, redis::ONE, redis::FIFTY][..], &web].concat()
}

pub use idle::{idle, used};
pub use ip::over_ip;
pub use iperf3::IPERF3;
pub(crate) use netperf::NETPERF;
pub use sockperf::SOCKPERF;
