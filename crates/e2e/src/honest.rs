//! Honest users, who must not notice an attack: a stream that is checked byte by byte, an echo and repeated set-up, run by
//! a user that is neither root nor the attacker, and their medians with and without an attack.
//!
//! ```text
//! let mut honest = Honest::start(&rig, "h1", "h2")?;
//! let calm = honest.watch(SECOND)?;
//! let attack = Attack::start(&rig, "nobody", "h1", "hoard", &[])?;
//! honest.holds_out(&calm)?;       // medians within three times the calm ones, no error, bytes flow
//! drop(attack);
//! honest.finish()?;               // every byte arrived
//! ```

use crate::program::Program;
use crate::rig::{self, Rig};
use crate::{PATIENCE, own_program, wait_for};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// The user of honest programs: neither root nor the attacker.
pub const USER: &str = "daemon";
/// The window of a median.
pub const WINDOW: Duration = Duration::from_millis(1500);
/// How many times slower medians may become under attack.
pub const FACTOR: u64 = 3;
/// On a busy machine one window proves nothing: this many are tried, and one must be good.
const WINDOWS: usize = 4;
/// Medians below these count as these, ns: the kernel's scheduler alone causes them with two busy processors.
const ECHO_FLOOR: u64 = 100_000;
const SETUP_FLOOR: u64 = 400_000;
/// How many times as many threads take turns in a set-up by streams (two programs, two daemons) as in the machine's own
/// (two threads). Each waits for a processor; that time is not caused by the attack.
const TURNS: u64 = 3;

/// First byte of a connection that is a stream of [`byte_at`]; at its end the server answers with the number of right bytes.
pub const STREAM: u8 = b's';

/// The byte at an offset of the stream; nearby patterns differ.
pub fn byte_at(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0]
}

/// The server and the client.
#[derive(Debug)]
pub struct Honest {
    server: Program,
    client: Program,
    port: u16,
}

/// What honest users measured in a window of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Median round trip of 64 bytes, ns.
    pub echo_ns: u64,
    /// Median of connecting, a byte there and back, and closing, ns.
    pub setup_ns: u64,
    /// The same over a Unix socket between two threads, ns: the machine's own share at that time.
    pub machine_ns: u64,
    /// Round trips.
    pub echoes: usize,
    /// Connections.
    pub setups: usize,
    /// Bytes that the stream sent.
    pub sent: u64,
}

impl Honest {
    /// Starts a server on `to` and a client on `from`, and waits until all three go on.
    ///
    /// # Errors
    /// They cannot be started, or nothing comes in time.
    pub fn start(rig: &Rig, from: &str, to: &str) -> Result<Self> {
        let program = public_copy(rig, "crosslane-honest")?;
        let port = rig.port();
        let mut server = rig.command_as(USER, to, &program)?;
        let mut server = Program::start(server.args(["server", &port.to_string()]))?;
        server.listens(port)?;
        let address = rig.address(to)?.to_string();
        let mut client = rig.command_as(USER, from, &program)?;
        let client = Program::start(client.args(["client", &address, &port.to_string()]))?;
        let mut honest = Self { server, client, port };
        wait_for("honest users are at work", PATIENCE, || {
            let lines = honest.lines(0);
            let works = !honest.client.is_over() && lines.iter().any(|line| line["sent"].as_u64() > Some(0));
            if works && lines.len() > 2 { Ok(()) } else { Err(honest.client.tail()) }
        })?;
        let streams = rig.account(from)?.circuits;
        ensure!(streams >= 2, "honest users have {streams} streams, and went by TCP");
        Ok(honest)
    }

    /// What they measure in the next `time`.
    ///
    /// # Errors
    /// One of them met an error or ended, or nothing was done in that time.
    pub fn watch(&mut self, time: Duration) -> Result<Figures> {
        let (begin, end) = (self.client.output().len(), Instant::now() + time);
        while Instant::now() < end {
            ensure!(!self.client.is_over(), "an honest client ended: {}", self.client.tail());
            std::thread::sleep(Duration::from_millis(20));
        }
        self.check()?;
        let figures = figures_of(&self.lines(begin));
        ensure!(figures.echoes > 0 && figures.setups > 0, "honest users stand still: {figures:?}");
        Ok(figures)
    }

    /// Checks that the present attack leaves the medians within [`FACTOR`] times the `calm` ones. A few windows are
    /// tried, since other work of the machine counts too.
    ///
    /// # Errors
    /// They are slower in every window, or one of them met an error.
    pub fn holds_out(&mut self, calm: &Figures) -> Result<Figures> {
        let mut seen = Vec::new();
        for _ in 0..WINDOWS {
            let now = self.watch(WINDOW)?;
            if now.is_within(calm) {
                println!("honest users: calm {calm:?}, attacked {now:?}");
                return Ok(now);
            }
            seen.push(now);
        }
        anyhow::bail!("honest users are slower than {FACTOR} times {calm:?}: {seen:?}")
    }

    /// What they measure in three windows, one after the other: for [`Figures::any_is_within`].
    ///
    /// # Errors
    /// As [`Self::watch`].
    pub fn watch_thrice(&mut self) -> Result<[Figures; 3]> {
        Ok([self.watch(WINDOW)?, self.watch(WINDOW)?, self.watch(WINDOW)?])
    }

    /// Checks that none of them has met an error so far.
    ///
    /// # Errors
    /// One has.
    pub fn check(&mut self) -> Result<()> {
        ensure!(!self.client.is_over(), "an honest client ended: {}", self.client.tail());
        ensure!(!self.server.is_over(), "an honest server ended: {}", self.server.tail());
        Ok(())
    }

    /// The client's process.
    pub fn client(&self) -> &Program {
        &self.client
    }

    /// Where the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's process.
    pub fn server(&self) -> &Program {
        &self.server
    }

    /// Ends the stream; every byte of it must have arrived.
    ///
    /// # Errors
    /// One of them met an error, now or before.
    pub fn finish(mut self) -> Result<()> {
        self.check()?;
        self.client.signal(Signal::TERM)?;
        let printed = self.client.finish(PATIENCE)?;
        ensure!(printed.text().ends_with("whole\n"), "no end: {}", printed.errors);
        Ok(())
    }

    fn lines(&self, from: usize) -> Vec<Value> {
        let output = self.client.output();
        let text = String::from_utf8_lossy(output.get(from..).unwrap_or_default()).into_owned();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Figures {
    /// Checks that one of the windows `attacked` [is within](Self::is_within) what was measured without the attack afterwards.
    ///
    /// # Errors
    /// None is.
    pub fn any_is_within(attacked: &[Self], calm: &Self) -> Result<()> {
        ensure!(attacked.iter().any(|now| now.is_within(calm)), "calm {calm:?}, attacked {attacked:?}");
        Ok(())
    }

    /// Whether both medians are at most [`FACTOR`] times those of `calm`, or of what a busy machine makes of them, and
    /// the stream moved.
    pub fn is_within(&self, calm: &Self) -> bool {
        let machine = TURNS * self.machine_ns;
        // Over a posted cable each message of an echo waits for a thread (the lander) that needs a processor, as those of the machine's own do.
        let lander = if rig::has_delays() { self.machine_ns } else { 0 };
        self.echo_ns <= FACTOR * calm.echo_ns.max(ECHO_FLOOR).max(lander)
            && self.setup_ns <= FACTOR * calm.setup_ns.max(SETUP_FLOOR).max(machine)
            && self.sent > 0
    }
}

fn figures_of(lines: &[Value]) -> Figures {
    let all = |key: &str| -> Vec<u64> {
        let lists = lines.iter().filter_map(|line| line[key].as_array());
        lists.flatten().filter_map(Value::as_u64).collect()
    };
    let (echo, setup, machine) = (all("echo"), all("setup"), all("machine"));
    let sent = |line: Option<&Value>| line.and_then(|line| line["sent"].as_u64()).unwrap_or(0);
    Figures {
        echo_ns: median(&echo),
        setup_ns: median(&setup),
        machine_ns: median(&machine),
        echoes: echo.len(),
        setups: setup.len(),
        sent: sent(lines.last()) - sent(lines.first()),
    }
}

fn median(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// A program of this project's, copied to where every user can run it; its path.
///
/// # Errors
/// It was not built, or cannot be copied.
pub fn public_copy(rig: &Rig, name: &str) -> Result<String> {
    let built = own_program(name)?;
    let copy = rig.file(name);
    if !copy.exists() {
        copy_program(&built, &copy).with_context(|| built.display().to_string())?;
    }
    Ok(copy.display().to_string())
}

fn copy_program(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::copy(from, to)?;
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn honest_medians_and_bytes_of_a_window() {
        let lines = [
            json!({"echo": [5, 1], "setup": [9], "machine": [7], "sent": 10}),
            json!({"echo": [3], "setup": [], "machine": [], "sent": 30}),
        ];
        let seen = figures_of(&lines);
        assert_eq!(seen, Figures { echo_ns: 3, setup_ns: 9, machine_ns: 7, echoes: 3, setups: 1, sent: 20 });
    }

    #[test]
    fn honest_limit_is_three_times_slower() {
        let (echo_ns, setup_ns, machine_ns) = (1_000_000, 1_000_000, 1_000);
        let calm = Figures { echo_ns, setup_ns, machine_ns, echoes: 1, setups: 1, sent: 1 };
        assert!(Figures { echo_ns: 3_000_000, ..calm }.is_within(&calm));
        assert!(!Figures { echo_ns: 3_000_001, ..calm }.is_within(&calm));
        assert!(!Figures { setup_ns: 3_000_001, ..calm }.is_within(&calm));
        assert!(Figures { setup_ns: 3_600_000, machine_ns: 400_000, ..calm }.is_within(&calm));
        assert!(!Figures { sent: 0, ..calm }.is_within(&calm));
    }
}
