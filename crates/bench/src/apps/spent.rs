//! Processor time of all processes in some network namespaces, whoever started them, and of the children that this
//! process has waited for.

use crate::program::process::processor_time;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Network namespaces whose processes are counted.
#[derive(Clone, Debug)]
pub(super) struct Hosts {
    namespaces: Vec<PathBuf>,
    /// The daemons' processes.
    daemons: Vec<u32>,
}

impl Hosts {
    /// Those that these processes, the daemons, are in.
    ///
    /// # Errors
    /// One of them has gone.
    pub(super) fn of(processes: &[u32]) -> Result<Self> {
        let namespaces = processes.iter().map(|pid| {
            let link = format!("/proc/{pid}/ns/net");
            fs::read_link(&link).with_context(|| format!("read {link}"))
        });
        Ok(Self { namespaces: namespaces.collect::<Result<_>>()?, daemons: processes.to_vec() })
    }

    /// Processor time so far, s, of the daemons alone.
    pub(super) fn spent_by_daemons(&self) -> f64 {
        let nanos: u64 = self.daemons.iter().filter_map(|&pid| processor_time(pid)).sum();
        Duration::from_nanos(nanos).as_secs_f64()
    }

    /// Processor time so far, s: of their processes, of those that these waited for, and of all that this process
    /// waited for. The kernel's resolution is 10 ms for each process.
    #[expect(clippy::cast_precision_loss, reason = "a figure")]
    pub(super) fn spent(&self) -> f64 {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let inside = all.filter(|process| self.has(process));
        let ticks: u64 = inside.filter_map(|process| Some(times(&process)?.iter().sum::<u64>())).sum();
        let ended: u64 = times(Path::new("/proc/self")).map_or(0, |[_, _, user, system]| user + system);
        (ticks + ended) as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    fn has(&self, process: &Path) -> bool {
        fs::read_link(process.join("ns/net")).is_ok_and(|link| self.namespaces.contains(&link))
    }
}

/// Ticks of a process: user, system, and both of the children that it has waited for.
fn times(process: &Path) -> Option<[u64; 4]> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name may hold anything; what follows it begins with the state, field 3.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse().ok();
    Some([next()?, next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_of_a_child_is_counted() {
        let nobody = Hosts { namespaces: Vec::new(), daemons: Vec::new() };
        let before = nobody.spent();
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]).status().unwrap();
        assert!(done.success() && nobody.spent() > before);
        let here = Hosts::of(&[std::process::id()]).unwrap();
        assert!(here.has(Path::new("/proc/self")) && !nobody.has(Path::new("/proc/self")));
        assert!(Hosts::of(&[u32::MAX]).is_err());
    }
}
