//! A pseudo-terminal with the command on it, and what an emulator makes of its output.

use crate::daemon::{PATIENCE, Pair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use vt100::{Parser, Screen};

/// The command under test.
pub(crate) const CROSSLANE: &str = env!("CARGO_BIN_EXE_crosslane");

/// The terminal.
pub(crate) struct Terminal {
    ours: OwnedFd,
    /// Open as long as the terminal is to be there, and the modes that it had at first.
    theirs: OwnedFd,
    before: Termios,
    parser: Parser,
    /// All that came.
    pub(crate) raw: Vec<u8>,
    child: Child,
}

/// Arguments of `top` for the daemon of h1, with few looks between.
pub(crate) fn of(pair: &Pair) -> Vec<String> {
    ["top", "--delay", "0.1", "--socket"]
        .map(str::to_owned)
        .into_iter()
        .chain([pair.socket(1).display().to_string()])
        .collect()
}

impl Terminal {
    /// `crosslane` with these arguments, as the leader of a session of its own on a terminal of 80 columns and 24 lines.
    pub(crate) fn start(args: &[String]) -> Self {
        let mut command = Command::new("setsid");
        command.args(["--ctty", CROSSLANE]).args(args);
        Self::of_command(command)
    }

    /// Another command, in the same environment.
    pub(crate) fn of_command(mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("unlocked");
        let name = ptsname(&ours, Vec::new()).expect("a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = rustix::fs::open(&name, flags, Mode::empty()).expect("its other side");
        give_size(&ours, 24, 80);
        let copy = || theirs.try_clone().expect("a copy");
        for (name, value) in [("TERM", "xterm-256color"), ("LC_ALL", "C.UTF-8")] {
            if command.get_envs().all(|(known, _)| known != name) {
                command.env(name, value);
            }
        }
        if command.get_envs().all(|(known, _)| known != "NO_COLOR") {
            command.env_remove("NO_COLOR");
        }
        let child =
            command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("setsid of util-linux");
        let before = tcgetattr(&theirs).expect("its modes");
        let parser = Parser::new(size(24), size(80), 0);
        Self { ours, theirs, before, parser, raw: Vec::new(), child }
    }

    /// Takes in what comes until the screen is as wanted.
    pub(crate) fn wait(&mut self, what: &str, wanted: impl Fn(&Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !wanted(self.parser.screen()) {
            assert!(Instant::now() < end, "not in time: {what}; the screen is\n{}", self.text());
            self.take_in(Duration::from_millis(50));
        }
    }

    /// Waits until a text is on the screen.
    pub(crate) fn wait_text(&mut self, text: &str) {
        self.wait(text, |screen| screen.contents().contains(text));
    }

    /// Waits until a text has come, wherever it went.
    pub(crate) fn wait_raw(&mut self, text: &str) {
        let end = Instant::now() + PATIENCE;
        while !self.raw.windows(text.len()).any(|part| part == text.as_bytes()) {
            assert!(Instant::now() < end, "not in time: {text}; the screen is\n{}", self.text());
            self.take_in(Duration::from_millis(50));
        }
    }

    /// Takes in what comes within a time.
    pub(crate) fn take_in(&mut self, time: Duration) {
        let timeout = Timespec::try_from(time).expect("short");
        let ready = poll(&mut [PollFd::new(&self.ours, PollFlags::IN)], Some(&timeout));
        if !matches!(ready, Ok(1..)) {
            return;
        }
        let mut bytes = [0; 65536];
        match rustix::io::read(&self.ours, &mut bytes) {
            Ok(count) => {
                self.raw.extend_from_slice(&bytes[..count]);
                self.parser.process(&bytes[..count]);
            }
            Err(Errno::IO | Errno::INTR) => {}
            Err(error) => panic!("read of the terminal: {error}"),
        }
    }

    /// Presses keys.
    pub(crate) fn press(&self, keys: &str) {
        let count = rustix::io::write(&self.ours, keys.as_bytes()).expect("written");
        assert_eq!(count, keys.len());
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, lines: u16, columns: u16) {
        give_size(&self.ours, lines, columns);
        self.parser.set_size(size(lines), size(columns));
    }

    /// What is on the screen.
    pub(crate) fn text(&self) -> String {
        self.screen().contents()
    }

    /// The screen.
    pub(crate) fn screen(&self) -> &Screen {
        self.parser.screen()
    }

    /// One line of it.
    pub(crate) fn line(&self, line: usize) -> String {
        self.screen().rows(0, 300).nth(line).unwrap_or_default()
    }

    /// Sends the command a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signalled");
    }

    /// The command's process.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the command has ended, takes in what it said, and gives its exit code.
    fn end(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            self.take_in(Duration::from_millis(20));
            if let Some(status) = self.child.try_wait().expect("our child") {
                self.take_in(Duration::from_millis(20));
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end; the screen is\n{}", self.text());
        }
    }

    /// Waits until the command has ended, and asserts that its exit code is this.
    pub(crate) fn ends(&mut self, code: i32) {
        let end = self.end();
        assert_eq!(end, Some(code), "the screen is\n{}", self.text());
    }

    /// Whether the display has the terminal.
    pub(crate) fn is_taken(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("its modes");
        self.screen().alternate_screen()
            && self.screen().hide_cursor()
            && modes.local_modes != self.before.local_modes
    }

    /// Whether the terminal is as it was before.
    pub(crate) fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.theirs).expect("its modes");
        let same = modes.local_modes == self.before.local_modes
            && modes.input_modes == self.before.input_modes
            && modes.output_modes == self.before.output_modes;
        same && !self.screen().alternate_screen() && !self.screen().hide_cursor()
    }

    /// Takes the terminal away, and gives what is left: the command.
    pub(crate) fn vanish(mut self) -> Option<i32> {
        // Fields cannot be moved out of what is dropped by hand.
        let null = || rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        self.theirs = null().expect("/dev/null");
        self.ours = null().expect("/dev/null");
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end with its terminal");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the screen is\n{}", self.text());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("above 0")
}

fn give_size(terminal: &OwnedFd, ws_row: u16, ws_col: u16) {
    let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a size");
}
