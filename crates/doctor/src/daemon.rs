//! The daemon, as far as its status says it.

use crate::finding::{Check, Finding, Severity};
use crosslane_status::{Link, Port, Status};

/// Most ports and reasons that are named; a daemon has 16 ports.
const MOST: usize = 64;

/// What became of the question for the daemon's status.
#[derive(Debug)]
pub enum Daemon {
    /// It was not asked: the files are another machine's.
    NotAsked,
    /// None listens; why, as a message.
    Absent(String),
    /// One listens, and gave no status; why, as a message.
    Refused(String),
    /// Its status, and the release of who asked.
    Answered(Box<Status>, &'static str),
}

/// Says what is wrong with it.
pub(crate) fn examine(daemon: &Daemon, found: &mut Vec<Finding>) {
    let reason = "programs have streams by their host's daemon; without one they use TCP";
    match daemon {
        Daemon::NotAsked => {}
        Daemon::Absent(why) => found.push(
            Finding::new(Check::Daemon, Severity::Info, why).why(reason).fix("`crosslaned --config FILE`, or `systemctl start crosslaned`; `--socket PATH` if it has another control socket"),
        ),
        Daemon::Refused(why) => found.push(
            Finding::new(Check::Daemon, Severity::Error, why).why(reason).fix("its log says more (docs/operations.md, \"What its messages mean\"); daemon and command must be of one release"),
        ),
        Daemon::Answered(status, release) => status_of(status, release, found),
    }
}

fn status_of(status: &Status, release: &str, found: &mut Vec<Finding>) {
    let seen = format!(
        "host {}, up {:.0} s, {} open streams",
        status.host, status.uptime_s, status.counters.streams_open
    );
    found.push(Finding::new(Check::Daemon, Severity::Ok, seen));
    if status.version != release {
        found.push(
            Finding::new(
                Check::Release,
                Severity::Warning,
                format!("the daemon is {}, this command {release}", status.version),
            )
            .why("programs and daemon must speak one version of the protocol")
            .fix("restart the daemon after an upgrade: `systemctl restart crosslaned`"),
        );
    }
    found.extend(status.ports.iter().take(MOST).map(cable));
    found.extend(violations(status));
    found.extend(plain(status));
    found.extend(quotas(status));
    if status.duplicate_id {
        found.push(
            Finding::new(Check::HostId, Severity::Error, format!("another host has the id {} too, or speaks in its name", status.host))
                .why("neighbours refuse the second of two hosts with one id")
                .fix("give each host its own `host`; `keys` keep others from speaking in its name (docs/operations.md, \"Keys\")"),
        );
    }
    if !status.namespaces {
        found.push(
            Finding::new(
                Check::Namespaces,
                Severity::Warning,
                "the daemon's kernel cannot tell network namespaces apart",
            )
            .why("programs of other users are refused, since they may be in another network namespace")
            .fix("a kernel from 5.14 on"),
        );
    }
}

fn cable(port: &Port) -> Finding {
    let peer = port.peer.map_or_else(String::new, |peer| format!(" to host {peer}"));
    let why = port.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    let seen = format!("{} port, {}{peer}{why}", port.kind, port.link);
    let finding = |severity| Finding::new(Check::Cable, severity, &seen).about(&port.name);
    match (port.link, port.silent) {
        (Link::Up, false) => finding(Severity::Ok),
        (Link::Up, true) => finding(Severity::Warning)
            .why("the cable is up and the neighbour's daemon does not answer: it is stopped, or very busy")
            .fix("look at the daemon of the neighbour"),
        (Link::Down, _) => finding(Severity::Warning)
            .why("no stream crosses it; those that did go another way, or wait")
            .fix(down(&port.kind)),
        (Link::Cut, _) => finding(Severity::Info)
            .why("it was switched off here")
            .fix("`crosslane lab mend`, or `cut = false` in the configuration"),
        (Link::Refused, _) => finding(Severity::Error)
            .why("the two ends do not fit together")
            .fix("give one end side `a` and the other `b`, each host its own id, and both the same release"),
    }
}

fn down(kind: &str) -> &'static str {
    if kind == "ntb" {
        "both machines on, cable in, module and daemon running at both ends; `dmesg | grep -e ntb -e crosslane` says whether the bridge's link is up"
    } else {
        "start the daemon of the other end; both must name the same `cable`, one with side `a`, one with `b`"
    }
}

fn violations(status: &Status) -> Option<Finding> {
    let count = status.counters.violations;
    (count > 0).then(|| {
        Finding::new(Check::Violations, Severity::Warning, format!("{count} breaches of the protocol since the daemon started"))
            .why("a neighbour or a program wrote what it must not: a fault, another release, or an attack; each was refused")
            .fix("the daemon's log names who it was")
    })
}

fn plain(status: &Status) -> Option<Finding> {
    let all = &status.counters.plain;
    let total = all.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
    let reasons: Vec<String> = all
        .iter()
        .filter(|(_, count)| **count > 0)
        .take(MOST)
        .map(|(why, count)| format!("{why} {count}"))
        .collect();
    (total > 0).then(|| {
        Finding::new(Check::Plain, Severity::Info, format!("{total} connections stayed TCP: {}", reasons.join(", ")))
            .why("each has its reason, which need not be a fault")
            .fix("docs/operations.md, \"Why is a connection not a stream?\", has the reasons; `crosslane explain PID` those of one program")
    })
}

fn quotas(status: &Status) -> Option<Finding> {
    let refused: Vec<String> = status
        .quota
        .pools
        .iter()
        .filter(|pool| pool.refused > 0)
        .take(MOST)
        .map(|pool| format!("{} {}", pool.kind, pool.refused))
        .collect();
    (!refused.is_empty()).then(|| {
        Finding::new(Check::Quota, Severity::Warning, format!("refused, since somebody had as much as he may: {}", refused.join(", ")))
            .why("connections become TCP, or sessions are refused")
            .fix("`crosslane status` shows who has what; [quota] in the configuration, fewer streams, or a longer window")
    })
}
