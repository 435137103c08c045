//! What is on the screen.

use crate::daemon::Pair;
use crate::terminal::{CROSSLANE, Terminal, of};
use std::process::Command;
use std::time::Duration;

/// The page of keys.
const F1: &str = "\x1bOP";

pub(crate) fn shows_everything() {
    let pair = Pair::start();
    let (busy, idle) = (pair.stream("busy"), pair.stream("idle"));
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("F10Quit");
    top.wait("a stream that sends is above one that does not", |screen| {
        busy.send(10_000_000);
        let text = screen.contents();
        text.find("busy").zip(text.find("idle")).is_some_and(|(busy, idle)| busy < idle)
    });
    top.wait("its rate", |screen| {
        busy.send(10_000_000);
        let row = screen.rows(0, 80).find(|row| row.starts_with(" busy"));
        row.is_some_and(|row| row.contains('M') || row.contains('G'))
    });
    idle.send(1);
    let text = top.text();
    assert!(top.line(0).starts_with("h1 up") && top.line(1).starts_with("Out["), "{text}");
    assert!(text.contains("[h1] ─") && text.contains("─ h2") && text.contains(" right"), "{text}");
    assert!(text.contains("127.86.0.2:"), "{text}");
    top.press("\t\t");
    top.wait("round trips to h2", |screen| {
        let row = screen.rows(0, 80).find(|row| row.trim_start().starts_with("h2 "));
        row.is_some_and(|row| row.matches("us").count() + row.matches("ms").count() >= 5)
    });
    assert!(["p50", "p90", "p99", "MAX"].iter().all(|title| top.text().contains(title)), "{}", top.text());
    top.press("q");
    top.ends(0);
}

pub(crate) fn obeys_keys() {
    let pair = Pair::start();
    let _streams = ["alpha", "beta", "gamma"].map(|name| pair.stream(name));
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("gamma");
    top.press("\\beta");
    top.wait("the filter", |screen| {
        let text = screen.contents();
        text.contains("Filter: beta") && text.contains(" beta ") && !text.contains("gamma")
    });
    top.press("\x1b");
    top.wait("no filter", |screen| screen.contents().contains("gamma"));
    top.press("/gam\r ");
    top.wait_text("1 tagged");
    top.wait("the tagged row", |screen| screen.rows(0, 80).any(|row| row.starts_with("*gamma")));
    top.press(F1);
    top.wait_text("KEYS");
    top.press("x");
    top.wait("the page of keys is gone", |screen| !screen.contents().contains("KEYS"));
    top.press("\x1b[17~\x1b[H\r");
    top.wait("sorted by program", |screen| {
        let rows: Vec<String> = screen.rows(0, 80).collect();
        let at =
            |name: &str| rows.iter().position(|row| row.get(1..).is_some_and(|row| row.starts_with(name)));
        rows.iter().any(|row| row.contains("PROGRAM+"))
            && at("alpha") < at("beta")
            && at("beta") < at("gamma")
    });
    top.press("I");
    top.wait_text("PROGRAM-");
    top.press("p");
    top.wait_text("PAUSED");
    top.press("p++");
    top.wait_text("every 0.5 s");
    top.press("\x1b[21~");
    top.ends(0);
}

pub(crate) fn fits_another_size() {
    let pair = Pair::start();
    let _stream = pair.stream("resized");
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("resized");
    top.resize(12, 40);
    top.wait("the keys in the last line", |screen| {
        screen.rows(0, 40).nth(11).is_some_and(|row| row.contains("F1Help") && row.contains("F10Quit"))
    });
    assert!(top.text().contains("resized"), "{}", top.text());
    top.resize(50, 160);
    top.wait("more columns", |screen| {
        let rows: Vec<String> = screen.rows(0, 160).collect();
        rows[49].contains("F10Quit") && rows.iter().any(|row| row.contains("WAKES"))
    });
    assert_eq!(top.text().matches("F10Quit").count(), 1, "{}", top.text());
    top.resize(3, 5);
    top.take_in(Duration::from_millis(300));
    top.resize(24, 80);
    top.wait("all again", |screen| screen.rows(0, 80).nth(23).is_some_and(|row| row.contains("F10Quit")));
    top.press("q");
    top.ends(0);
}

pub(crate) fn is_not_fooled_by_names() {
    let pair = Pair::start();
    let _streams = [pair.stream("\u{202e}端末\u{200d}x"), pair.stream("usual")];
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("?端末?x");
    top.wait_text("usual");
    let raw = String::from_utf8_lossy(&top.raw).into_owned();
    assert!(!raw.contains('\u{202e}') && !raw.contains('\u{200d}'));
    let columns = |name: &str| {
        let row = (0..24).find(|row| top.line(*row).contains(name)).expect("a row");
        let cell = |x: u16| top.screen().cell(u16::try_from(row).expect("small"), x);
        (0..80).find(|x| cell(*x).is_some_and(|cell| cell.contents() == "1")).expect("an address")
    };
    assert_eq!(columns("端末"), columns("usual"), "{}", top.text());
    top.press("q");
    top.ends(0);
}

pub(crate) fn tells_of_a_lost_cable() {
    let mut pair = Pair::start();
    let mut top = Terminal::start(&of(&pair));
    top.wait_text("─ h2");
    pair.kill(2);
    top.wait("a lost cable in the picture", |screen| screen.contents().contains("╳"));
    top.press("\x1b[Z");
    top.wait("the event", |screen| {
        screen.rows(0, 80).any(|row| row.contains("port right down") && row.contains("h2"))
    });
    top.press("q");
    top.ends(0);
}

pub(crate) fn is_plain_where_it_must() {
    let pair = Pair::start();
    let _stream = pair.stream("端末");
    let mut command = Command::new("setsid");
    command.args(["--ctty", CROSSLANE]).args(of(&pair)).env("NO_COLOR", "1").env("LC_ALL", "C");
    let mut top = Terminal::of_command(command);
    top.wait_text("?? ");
    for key in ["\t", "\t", "\t", F1] {
        top.press(key);
        top.take_in(Duration::from_millis(100));
    }
    top.wait_text("KEYS");
    assert!(top.raw.is_ascii(), "{}", String::from_utf8_lossy(&top.raw));
    for line in 0..24 {
        for column in 0..80 {
            let cell = top.screen().cell(line, column).expect("a cell");
            assert_eq!((cell.fgcolor(), cell.bgcolor()), (vt100::Color::Default, vt100::Color::Default));
        }
    }
    top.press("q");
    top.press("q");
    top.ends(0);
}
