//! How the display begins, ends, stops and sleeps.

use crate::daemon::{Pair, until};
use crate::terminal::{CROSSLANE, Terminal, of};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::time::Duration;

pub(crate) fn gives_back() {
    let pair = Pair::start();
    type Way = fn(&Terminal);
    let ways: [(&str, Way); 5] = [
        ("q", |top| top.press("q")),
        ("Ctrl-C", |top| top.press("\x03")),
        ("SIGINT", |top| top.signal(Signal::INT)),
        ("SIGTERM", |top| top.signal(Signal::TERM)),
        ("SIGHUP", |top| top.signal(Signal::HUP)),
    ];
    for (name, end) in ways {
        let mut top = Terminal::start(&of(&pair));
        top.wait_text("F10Quit");
        assert!(top.is_taken(), "{name}");
        end(&top);
        top.ends(0);
        assert!(top.is_given_back() && top.text().trim().is_empty(), "{name}: {}", top.text());
    }
    let mut top = Terminal::start(&[of(&pair), vec!["-n".to_owned(), "3".to_owned()]].concat());
    top.ends(0);
    assert!(top.is_given_back());
}

pub(crate) fn says_that_the_daemon_is_gone() {
    // Also while it is paused, and asks nothing.
    for keys in ["", "p"] {
        let mut pair = Pair::start();
        let mut top = Terminal::start(&of(&pair));
        top.wait_text("F10Quit");
        top.press(keys);
        if !keys.is_empty() {
            top.wait_text("PAUSED");
        }
        pair.kill(1);
        top.ends(3);
        assert!(top.is_given_back());
        let text = top.text().replace('\n', "");
        assert!(text.contains("1.sock has gone away") && text.contains("start it again"), "{text}");
    }
    let mut none = Terminal::start(&["top", "--socket", "/no/such/socket"].map(str::to_owned));
    none.ends(3);
    assert!(!none.raw.contains(&b'\x1b'), "the terminal is not touched without a daemon");
}

pub(crate) fn waits_for_a_hanging_daemon() {
    let pair = Pair::start();
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("F10Quit");
    pair.signal(1, Signal::STOP);
    top.wait_text("NO ANSWER FOR");
    top.press("\x1bOP");
    top.wait_text("KEYS");
    pair.signal(1, Signal::CONT);
    top.wait("it answers again", |screen| !screen.contents().contains("NO ANSWER"));
    top.press("qq");
    top.ends(0);
}

pub(crate) fn is_a_job() {
    let pair = Pair::start();
    // A shell with job control: the next command runs when the job has stopped.
    let script = format!("{CROSSLANE} {}; echo has stopped; fg; echo has ended $?", of(&pair).join(" "));
    let mut command = Command::new("setsid");
    command.args(["--ctty", "bash", "--norc", "-c"]).arg(format!("set -m; {script}"));
    let mut top = Terminal::of_command(command);
    top.wait_text("F10Quit");
    assert!(top.is_taken());
    top.press("\x1a");
    top.wait_raw("has stopped");
    top.wait("the display once more", |screen| {
        screen.alternate_screen() && screen.contents().contains("F10Quit")
    });
    assert!(top.is_taken());
    top.press("q");
    top.ends(0);
    assert!(top.is_given_back());
    let text = top.text();
    assert!(text.contains("has stopped") && text.contains("has ended 0"), "{text}");
}

/// Without a shell that could let it go on, it does not stop.
pub(crate) fn does_not_stop_alone() {
    let pair = Pair::start();
    goes_on(Terminal::start(&of(&pair)));
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: a parent whose session is outside of its PID namespace needs root");
        return;
    }
    // As in a container: its first process belongs to a session of outside.
    let script = format!("setsid --ctty --wait {CROSSLANE} {}; exit $?", of(&pair).join(" "));
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "bash", "--norc", "-c"]).arg(script);
    goes_on(Terminal::of_command(command));
}

fn goes_on(mut top: Terminal) {
    top.wait_text("F10Quit");
    top.press("\x1ap");
    top.wait_text("PAUSED");
    top.press("q");
    top.ends(0);
}

pub(crate) fn ends_with_its_terminal() {
    let pair = Pair::start();
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("F10Quit");
    top.vanish();
    // The same where the kernel tells nobody: it is not the terminal of its session.
    let mut command = Command::new("setsid");
    command.arg(CROSSLANE).args(of(&pair));
    let mut top = Terminal::of_command(command);
    top.wait_text("F10Quit");
    top.vanish();
}

pub(crate) fn sleeps() {
    let pair = Pair::start();
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("F10Quit");
    top.press("p");
    top.wait_text("PAUSED");
    let tasks = format!("/proc/{}/task", top.pid().as_raw_nonzero());
    let switches = || {
        let each = fs::read_dir(&tasks).expect("threads").flatten().map(|task| {
            let text = fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum::<u64>()
        });
        each.sum::<u64>()
    };
    let mut before = switches();
    until("no thread of it runs", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = switches();
        let same = now == before;
        before = now;
        same.then_some(())
    });
    top.press("q");
    top.ends(0);
}
