//! `crosslane lab cut`, `mend`, `kill`, `start`: faults on purpose.

use crate::table::count;
use anyhow::Result;
use crosslane_lab::{Lab, Moves, Noticed};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Write, stdout};
use std::time::{Duration, Instant};

/// How long a host that starts again may take to have its links.
const LINKS_TIMEOUT: Duration = Duration::from_secs(20);
/// The same of a virtual machine, which boots first.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(300);

/// How long no stream must move until all are assumed to have found their ways.
const QUIET: Duration = Duration::from_millis(500);

/// Cuts or mends the cable between two hosts. Prints how long both daemons took to notice, and how many streams moved.
pub(crate) fn cable(name: &str, one: &str, other: &str, cut: bool, as_json: bool) -> Result<()> {
    let mut lab = Lab::attach(name, None)?;
    let watch = lab.watch_moves()?;
    let noticed = if cut { lab.cut(one, other)? } else { lab.mend(one, other)? };
    let (one, other) = (&lab.host(one)?.name, &lab.host(other)?.name);
    let mut out = stdout().lock();
    if as_json {
        let moves = if noticed.changed { watch.settle(QUIET) } else { Moves::default() };
        return Ok(writeln!(out, "{:#}", outcome([one, other], cut, &noticed, moves))?);
    }
    let is = if cut { "cut" } else { "whole" };
    if !noticed.changed {
        writeln!(out, "cable {one}-{other} was {is} already")?;
        return Ok(());
    }
    writeln!(out, "cable {one}-{other} is {is}")?;
    for (host, after) in &noticed.ends {
        let link = if cut { "down" } else { "up" };
        let absent = |host: &str| lab.daemon(host).is_ok_and(|daemon| daemon.is_none());
        match after {
            Some(after) => writeln!(out, "  {host}: link {link} after {:.2} ms", after.as_secs_f64() * 1e3)?,
            None if absent(host) => writeln!(out, "  {host}: its daemon does not run")?,
            None if noticed.ends.iter().any(|(end, _)| absent(end)) => {
                writeln!(out, "  {host}: link down, the other daemon does not run")?
            }
            None => writeln!(out, "  {host}: link not {link} within 10 s")?,
        }
    }
    out.flush()?;
    Ok(write!(out, "{}", moved(watch.settle(QUIET)))?)
}

/// The outcome of a cut or mended cable. Times are in ms; `null`: not seen.
fn outcome(hosts: [&String; 2], cut: bool, noticed: &Noticed, moves: Moves) -> Value {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let end = |(host, after): &(String, Option<Duration>)| json!({"host": host, "after_ms": after.map(ms)});
    let ends: Vec<Value> = noticed.ends.iter().map(end).collect();
    let pause = (moves.streams > 0).then_some(ms(moves.longest));
    json!({"cable": hosts, "cut": cut, "changed": noticed.changed, "ends": ends,
           "streams_moved": moves.streams, "longest_pause_ms": pause})
}

/// The streams that moved, in a line; nothing if none did.
fn moved(Moves { streams, longest }: Moves) -> String {
    if streams == 0 {
        return String::new();
    }
    let (streams, longest) =
        (count(usize::try_from(streams).unwrap_or(usize::MAX), "stream"), longest.as_secs_f64());
    format!("  {streams} moved to another way, the longest pause {:.1} ms\n", longest * 1e3)
}

/// Kills a host's daemon, or all that runs in the host.
pub(crate) fn kill(name: &str, host: &str, programs: bool) -> Result<()> {
    let mut lab = Lab::attach(name, None)?;
    if programs {
        lab.kill_host(host)?
    } else {
        lab.kill_daemon(host, Signal::KILL)?
    }
    let what = if programs { "all that ran in" } else { "the daemon of" };
    Ok(writeln!(stdout(), "{what} {} is killed", lab.host(host)?.name)?)
}

/// Starts a host's daemon again.
pub(crate) fn start(name: &str, host: &str) -> Result<()> {
    let begin = Instant::now();
    let mut lab = Lab::attach(name, None)?;
    lab.start_daemon(host)?;
    let patience = if lab.state().accelerator.is_some() { MACHINE_TIMEOUT } else { LINKS_TIMEOUT };
    lab.wait_host(host, patience)?;
    let (host, after) = (&lab.host(host)?.name, begin.elapsed().as_secs_f64() * 1e3);
    Ok(writeln!(stdout(), "the daemon of {host} runs, its links are up after {after:.0} ms")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_reports_streams_that_moved() {
        let longest = Duration::from_micros(1320);
        let line = moved(Moves { streams: 2, longest });
        assert_eq!(line, "  2 streams moved to another way, the longest pause 1.3 ms\n");
        assert_eq!(moved(Moves::default()), "");
    }

    #[test]
    fn cut_is_reported_in_json() {
        let hosts = ["h1".to_owned(), "h2".to_owned()];
        let ends = vec![(hosts[0].clone(), Some(Duration::from_micros(1500))), (hosts[1].clone(), None)];
        let moves = Moves { streams: 2, longest: Duration::from_millis(3) };
        let outcome = outcome([&hosts[0], &hosts[1]], true, &Noticed { changed: true, ends }, moves);
        assert_eq!(outcome["ends"][0], json!({"host": "h1", "after_ms": 1.5}));
        assert_eq!(outcome["ends"][1]["after_ms"], Value::Null);
        assert_eq!(
            (outcome["streams_moved"].as_u64(), outcome["longest_pause_ms"].as_f64()),
            (Some(2), Some(3.0))
        );
    }
}
