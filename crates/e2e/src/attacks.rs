//! Attacks: programs that try to get, as another user or as a neighbour, what they must not get. Each is a subcommand
//! of `crosslane-attacker`; the tests in `tests/attacks` start them beside [honest users](crate::honest).
//!
//! A new attack: a module here with `pub fn run(words: &[String]) -> Result<()>`, a line in [`ATTACKS`], and a module in
//! `tests/attacks`. An attack prints `attacking` when it has begun, and what it got by it; it ends by itself within
//! [`LIFE`].

pub mod blackhole;
pub mod blocking;
pub mod hijack;
pub mod hoard;
pub mod inherited;
pub mod labfolder;
pub mod locks;
pub mod logflood;
pub mod lostsession;
pub mod memory;
pub mod names;
pub mod neighbour;
pub mod noise;
pub mod spying;
pub mod statusflood;
pub mod wake;

use crate::honest::public_copy;
use crate::program::Program;
use crate::rig::{Rig, privileges};
use anyhow::{Context, Result};
use crosslane_client::session::{FILES, OWN_CALLS_VARIABLE, Session, socket_path};
use std::process::Command;
use std::time::Duration;

/// Longest life of an attack that nobody ends.
pub const LIFE: Duration = Duration::from_secs(60);
/// The user that attackers run as.
pub const USER: &str = "nobody";

/// A hostile program, with the arguments behind its name.
pub type Run = fn(&[String]) -> Result<()>;

/// All attacks, by the name of their subcommand.
pub const ATTACKS: &[(&str, Run)] = &[
    ("blackhole", blackhole::run),
    ("blocking", blocking::run),
    ("hijack", hijack::run),
    ("labfolder", labfolder::run),
    ("spying", spying::run),
    ("hoard", hoard::run),
    ("complain", logflood::complain),
    ("inherited", inherited::run),
    ("inherited-parent", inherited::parent),
    ("locks", locks::run),
    ("locks-holder", locks::holder),
    ("locks-parent", locks::parent),
    ("logflood", logflood::run),
    ("lostsession", lostsession::run),
    ("memory", memory::run),
    ("memory-victim", memory::victim),
    ("names", names::run),
    ("noise", noise::run),
    ("statusflood", statusflood::run),
    ("wake", wake::run),
    ("neighbour", neighbour::run),
    ("raw", neighbour::raw),
    ("receive", neighbour::receive),
];

/// Runs the attack of that name in this process.
///
/// # Errors
/// There is none, or it could not even begin.
pub fn run(words: &[String]) -> Result<()> {
    let names = || ATTACKS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let name = words.first().with_context(|| format!("ATTACK ARGUMENTS: {}", names()))?;
    let attack = ATTACKS.iter().find(|(known, _)| known == name);
    let (_, run) = attack.with_context(|| format!("no attack {name}; there are: {}", names()))?;
    run(&words[1..])
}

/// A session that has said `Hello`.
pub(crate) fn greeted(program: &str) -> Result<Session> {
    let session = Session::connect(&socket_path())?;
    session.hello(program)?;
    Ok(session)
}

/// Prints that the attack has begun.
pub fn begun() {
    use std::io::Write;
    let mut out = std::io::stdout();
    let _ = writeln!(out, "attacking").and_then(|()| out.flush());
}

/// Starts an attack as user [`USER`] in a host, without the socket library, and waits until it has begun. A drop ends
/// it.
///
/// # Errors
/// It cannot be started, or ends before it begins.
pub fn start(rig: &Rig, host: &str, attack: &str, words: &[&str]) -> Result<Program> {
    start_as(rig, USER, host, attack, words)
}

/// The attacker's program with the socket library, as `user`. It makes its own system calls (rustix does), but none on
/// its streams; the library is told so.
///
/// # Errors
/// As [`Rig::command_as`].
pub fn command_as(rig: &Rig, user: &str, host: &str, attacker: &str) -> Result<Command> {
    let mut command = rig.command_as(user, host, attacker)?;
    command.env(OWN_CALLS_VARIABLE, FILES);
    Ok(command)
}

/// [`start`] with the socket library.
///
/// # Errors
/// As [`start`].
pub fn start_accelerated(rig: &Rig, host: &str, attack: &str, words: &[&str]) -> Result<Program> {
    let copy = public_copy(rig, "crosslane-attacker")?;
    let mut command = command_as(rig, USER, host, &copy)?;
    let mut program = Program::start(command.arg(attack).args(words))?;
    program.says("attacking")?;
    Ok(program)
}

/// The same as another user.
///
/// # Errors
/// As [`start`].
pub fn start_as(rig: &Rig, user: &str, host: &str, attack: &str, words: &[&str]) -> Result<Program> {
    let copy = public_copy(rig, "crosslane-attacker")?;
    let mut command = rig.plain(host, "setpriv")?;
    command.args(privileges(user)?).arg(copy).arg(attack).args(words);
    let mut program = Program::start(&mut command)?;
    program.says("attacking")?;
    Ok(program)
}
