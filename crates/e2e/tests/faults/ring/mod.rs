//! Programs in a ring whose cables are cut, whose hosts die or freeze: none of them notices more than a pause.

mod between;
mod cut;

use anyhow::{Result, ensure};
use crosslane_e2e::PATIENCE;
use crosslane_e2e::rig::Rig;
use crosslane_lab::{Options, Topology};
use crosslane_status::Counters;
use std::time::Duration;

/// How long programs run undisturbed before, between and after what happens to them.
const CALM: Duration = Duration::from_millis(400);

/// Hosts of the ring.
const HOSTS: [&str; 4] = ["h1", "h2", "h3", "h4"];

/// Four hosts in a ring: each has two ways to each.
fn ring() -> Result<Option<Rig>> {
    ring_of(Between::Shares)
}

/// What hosts between do with what passes: they hand memory on, or copy as with hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Shares,
    Pumps,
}

const BOTH: [Between; 2] = [Between::Shares, Between::Pumps];

/// As [`ring`], with hosts between of one kind.
fn ring_of(between: Between) -> Result<Option<Rig>> {
    Rig::up(options(between))
}

fn options(between: Between) -> Options {
    let pump = between == Between::Pumps;
    Options { hosts: 4, topology: Topology::Ring, pump, ..Options::scratch("e2e") }
}

fn count(rig: &Rig, host: &str, counter: impl FnOnce(&Counters) -> u64) -> Result<u64> {
    Ok(counter(&rig.lab.status(host)?.counters))
}

/// Waits until a host has so many open streams at least, and all of them lead over so many cables.
fn all_over(rig: &Rig, host: &str, cables: u8, streams: usize) -> Result<()> {
    rig.lab.wait_until(host, PATIENCE, |status| {
        let hops: Vec<u8> = status.open_circuits().map(|it| it.hops).collect();
        hops.len() >= streams && hops.iter().all(|hops| *hops == cables)
    })?;
    Ok(())
}

fn nothing_violated(rig: &Rig) -> Result<()> {
    HOSTS.into_iter().try_for_each(|host| {
        ensure!(count(rig, host, |it| it.violations)? == 0, "{}", rig.story(host));
        Ok(())
    })
}

fn nothing_broke(rig: &Rig) -> Result<()> {
    HOSTS.into_iter().try_for_each(|host| {
        ensure!(count(rig, host, |it| it.streams_aborted)? == 0, "{}", rig.story(host));
        Ok(())
    })?;
    nothing_violated(rig)
}
