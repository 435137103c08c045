//! A cable of a ring is cut and mended while iperf3 runs over it: how soon both daemons know, and how long streams are
//! without a circuit.

use super::Judged;
use crate::compare::Setting;
use crate::figure::{Figure, Sample, Unit};
use crate::place;
use crate::program::process::{Server, run};
use anyhow::{Context, Result, anyhow, ensure};
use crosslane_lab::{Lab, Moves, Noticed, Options, Preload};
use indicatif::ProgressBar;
use std::process::Command;
use std::time::Duration;

const PORT: u16 = 25_000;
/// How long iperf3 runs, s; how long before the cut; and how long it may take in all.
const SECONDS: u32 = 5;
const BEFORE: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(25);
/// How long no stream must have moved. A cable that was lost a few times is not trusted for a second.
const QUIET: Duration = Duration::from_millis(1500);

/// One cut and one mend, us.
#[derive(Debug, Default)]
struct Times {
    noticed: Vec<f64>,
    cut: Vec<f64>,
    mended: Vec<f64>,
}

pub(super) fn measure(setting: &Setting, _: &ProgressBar) -> Result<Vec<Judged>> {
    let mut lab = place::up(&Options::scratch("loss"))?;
    let mut command = lab.command("h2", Preload::On, "iperf3")?;
    command.args(["-s", "-p", &PORT.to_string()]);
    let server = Server::start(command, PORT)?;
    let mut times = Times::default();
    for _ in 0..setting.runs {
        let mut client = lab.command("h1", Preload::On, "iperf3")?;
        client.args(["-c", &lab.address("h2")?.to_string(), "-p", &PORT.to_string()]);
        client.args(["-t", &SECONDS.to_string(), "-l", "128K"]);
        once(&mut lab, client, &mut times)?;
    }
    drop(server);
    place::down(lab)?;
    let figure = |case: &str, runs| Figure::new("lost cable", case, Unit::Microseconds, Sample::new(runs));
    Ok(vec![
        figure("cut seen by both daemons", times.noticed).into(),
        figure("longest pause of a stream, cut", times.cut).into(),
        figure("longest pause of a stream, mended", times.mended).into(),
    ])
}

/// Cuts and mends while `client` runs, which must end well.
fn once(lab: &mut Lab, client: Command, times: &mut Times) -> Result<()> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run(client, LIMIT));
        std::thread::sleep(BEFORE);
        let watch = lab.watch_moves()?;
        times.noticed.push(both(&lab.cut("h1", "h2")?)?);
        times.cut.push(pause(watch.settle(QUIET))?);
        let watch = lab.watch_moves()?;
        lab.mend("h1", "h2")?;
        times.mended.push(pause(watch.settle(QUIET))?);
        running.join().map_err(|_| anyhow!("a run has panicked"))?.context("iperf3 noticed")?;
        Ok(())
    })
}

/// When the later of the two daemons noticed, us.
fn both(noticed: &Noticed) -> Result<f64> {
    let after = noticed.ends.iter().map(|(_, after)| *after).collect::<Option<Vec<Duration>>>();
    let last = after.and_then(|after| after.into_iter().max()).context("a daemon does not notice the cut")?;
    Ok(last.as_secs_f64() * 1e6)
}

fn pause(moves: Moves) -> Result<f64> {
    ensure!(moves.streams > 0, "no stream has moved");
    Ok(moves.longest.as_secs_f64() * 1e6)
}
