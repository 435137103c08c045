//! Processors and memory.

use crate::finding::{Check, Finding, Severity};
use crate::pci::Machine;
use crate::tree::Tree;

const CPU: &str = "sys/devices/system/cpu";
/// Idle states of a processor that are looked at.
const STATES: u32 = 16;
/// From this on waking costs more than a message, us.
const SLOW: i64 = 50;

/// Says how many processors there are, how they save power, and what huge pages there are.
pub(crate) fn examine(tree: &Tree, machine: &Machine, found: &mut Vec<Finding>) {
    found.push(cores(tree));
    found.extend(idle(tree, machine));
    found.extend(governor(tree));
    found.extend(huge_pages(tree));
}

fn cores(tree: &Tree) -> Finding {
    let online = tree.text(&format!("{CPU}/online")).unwrap_or_default();
    match count(&online) {
        Some(1) => Finding::new(Check::Cores, Severity::Warning, "one processor")
            .why("sender and reader take turns: whoever waits must sleep, and each message costs a wake")
            .fix("give the machine two processors or more"),
        Some(count) => Finding::new(Check::Cores, Severity::Ok, format!("{count} processors")),
        None => Finding::new(Check::Cores, Severity::Info, "the number of processors cannot be read"),
    }
}

/// How many numbers a list as `0-3,8` has.
fn count(list: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

/// The slowest state that processor 0 may enter.
fn idle(tree: &Tree, machine: &Machine) -> Option<Finding> {
    let states = (0..STATES).filter_map(|state| {
        let path = format!("{CPU}/cpu0/cpuidle/state{state}");
        let latency = tree.number(&format!("{path}/latency")).filter(|latency| *latency >= 0)?;
        let enabled = tree.number(&format!("{path}/disable")).unwrap_or(0) == 0;
        enabled.then(|| (latency, tree.text(&format!("{path}/name")).unwrap_or_default()))
    });
    let (latency, name) = states.max()?;
    let seen = format!("the deepest idle state, {name}, takes {latency} us to leave");
    if latency < SLOW {
        return Some(Finding::new(Check::Idle, Severity::Ok, seen));
    }
    let severity = if machine.has_bridge() { Severity::Warning } else { Severity::Info };
    Some(
        Finding::new(Check::Idle, severity, seen)
            .why("a sleeper that is woken there answers that much later; while programs spin, nothing is lost")
            .fix("`cpupower idle-set -D 50`, or `spin_us` in the daemon's configuration as long as the usual pause between messages"),
    )
}

fn governor(tree: &Tree) -> Option<Finding> {
    let text = |file: &str| tree.text(&format!("{CPU}/cpu0/cpufreq/scaling_{file}")).ok();
    let (governor, driver) = (text("governor")?, text("driver").unwrap_or_default());
    let seen = format!("the clock's governor is {governor} (driver {driver})");
    // In these the name means something else: the processor itself raises the clock under load.
    let by_itself = driver.starts_with("intel_pstate")
        || driver.starts_with("amd-pstate-epp")
        || driver.starts_with("amd_pstate_epp");
    if governor == "powersave" && !by_itself {
        let finding = Finding::new(Check::Governor, Severity::Warning, seen);
        return Some(
            finding
                .why("the clock stays at its lowest, and copies take as much longer")
                .fix("`cpupower frequency-set -g performance`, or schedutil"),
        );
    }
    Some(Finding::new(Check::Governor, Severity::Ok, seen))
}

fn huge_pages(tree: &Tree) -> Option<Finding> {
    let text = tree.text("proc/meminfo").ok()?;
    let value = |name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
    let (total, size) = (value("HugePages_Total:")?, value("Hugepagesize:").unwrap_or_default());
    let shared = tree.text("sys/kernel/mm/transparent_hugepage/shmem_enabled").unwrap_or_default();
    let shared = shared
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("unknown", |(chosen, _)| chosen)
        .to_owned();
    let seen = format!("{total} reserved, of {size}; transparent ones for shared memory: {shared}");
    let finding = Finding::new(Check::HugePages, Severity::Info, seen);
    Some(finding.why("Crosslane needs none, and refuses shared memory of reserved ones, which may run out; transparent ones may serve software ports"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_in_lists_are_counted() {
        assert_eq!([count("0-3,8"), count("0"), count("0-1")], [Some(5), Some(1), Some(2)]);
        assert_eq!([count(""), count("3-0"), count("0-4294967295"), count("0-x")], [None; 4]);
    }
}
